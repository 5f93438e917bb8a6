"""How a measurement is kept beside its enclave: entries of the ConfigMap, which is immutable.

The operator writes them, the enclave's agent gives them to clients, the facade to its users.
"""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cloister_crds.kinds.host import DOCUMENT_FILE, TEE
from cloister_crds.measurement.enclave import POLICY_FILE, Measurement
from cloister_crds.measurement.guest_rules import POD_DOCUMENT, pod_of
from cloister_crds.measurement.initdata import Initdata

__all__ = ["INITDATA_FILE", "PUBLISHED", "Publication", "entries", "published"]

INITDATA_FILE = "initdata.toml"
"""Key of the initdata's exact text."""
PUBLISHED = frozenset({DOCUMENT_FILE, INITDATA_FILE})
"""All keys that a measurement may have."""


@dataclass(frozen=True, slots=True)
class Publication:
    """A measurement as it was published; nothing in it is recomputed but the digests."""

    text: str
    """The document's canonical form."""
    initdata: Initdata | None
    """The initdata; None = none is measured."""
    documents: dict[str, str] = field(default_factory=dict)
    """The documents that the measurement names, by name."""

    @property
    def digest(self) -> str:
        """``sha256:`` and the hash of the text."""
        return f"sha256:{hashlib.sha256(self.text.encode()).hexdigest()}"

    @property
    def document(self) -> dict[str, Any]:
        """The document as data."""
        document: dict[str, Any] = json.loads(self.text)
        return document


def entries(measurement: Measurement) -> dict[str, str]:
    """Write a measurement as entries of a ConfigMap."""
    kept = {DOCUMENT_FILE: measurement.text.decode()}
    if measurement.initdata is not None:
        kept[INITDATA_FILE] = measurement.initdata.text.decode()
    return kept


def published(data: Mapping[str, str]) -> Publication | None:
    """Read a measurement from entries of a ConfigMap.

    Parameters
    ----------
    data
        ``data`` of the ConfigMap.

    Returns
    -------
    Publication | None
        None when the enclave was made before measurements were published.
    """
    text = data.get(DOCUMENT_FILE)
    if text is None:
        return None
    document = json.loads(text)
    documents = {name: data[name] for name in document.get("documents", ()) if name in data}
    toml = data.get(INITDATA_FILE)
    if toml is None:
        return Publication(text, None, documents)
    if POD_DOCUMENT in document.get("documents", ()):
        # It is kept once, in the initdata: it is as large as all other documents together.
        documents[POD_DOCUMENT] = pod_of(tomllib.loads(toml)["data"][POLICY_FILE])
    return Publication(text, Initdata(TEE(document["host"]["tee"]), toml.encode()), documents)
