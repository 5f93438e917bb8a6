"""The measurement of an enclave, and its publication in the ConfigMap of the Enclave."""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cloister_crds.config.model import ServiceConfig
from cloister_crds.kinds.host import DOCUMENT_FILE, TEE, HostSpec, TEEUnit
from cloister_crds.measurement.document import (
    MeasuredContainer,
    MeasuredHost,
    MeasuredSizing,
    MeasurementDocument,
    canonical,
)
from cloister_crds.measurement.initdata import (
    POD_DOCUMENT,
    Initdata,
    initdata_text,
    pod_of,
    policy_text,
    rules_text,
)

__all__ = [
    "FILE_ENTRY",
    "INITDATA_FILE",
    "POLICY_FILE",
    "POLICY_NAME",
    "PUBLISHED",
    "Measurement",
    "PlatformImages",
    "Publication",
    "entries",
    "gets_rules",
    "measure",
    "published",
]

POLICY_FILE = "policy.rego"
"""Initdata file with the rules by which the guest validates what the host requests of it."""
POLICY_NAME = "cloister_measurement"
"""Name under which those rules find the measurement document."""


@dataclass(frozen=True, slots=True)
class PlatformImages:
    """The images of ours in every enclave."""

    guest: str
    """Image of the guest program, with its digest."""
    shim: str
    """Image of the shim, with its digest."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What identifies an enclave."""

    document: MeasurementDocument
    """The measurement document."""
    initdata: Initdata | None
    """What the hardware measures; None if nothing of the enclave (no TEE, or the node's)."""

    @property
    def text(self) -> bytes:
        """The document's canonical bytes."""
        return canonical(self.document)

    @property
    def digest(self) -> str:
        """``sha256:`` and the hash of `text`."""
        return _digest(self.text)


def gets_rules(host: HostSpec) -> bool:
    """Return whether the machines of a Host's enclaves get the rules of this release.

    Parameters
    ----------
    host
        Spec of the Host as it counts for the enclave. A policy of its own replaces the rules.
    """
    own = any(each.name == POLICY_FILE for each in host.initdata)
    return host.tee_unit is TEEUnit.POD and not own


def measure(
    config: ServiceConfig,
    config_digest: str,
    *,
    host: HostSpec,
    images: PlatformImages,
    documents: Mapping[str, str],
    service: str,
    debug: bool,
    gpus: int | None,
) -> Measurement:
    """Measure an enclave before it exists.

    Parameters
    ----------
    config
        The parsed file.
    config_digest
        ``sha256:`` and the hash of the file's bytes.
    host
        Spec of the Host as it counts for the enclave: for a debug enclave without the Host's TEE
        that of `cloister_crds.lifecycle.admission.host_selection.profile`.
    documents
        Texts of the measured documents, by name; `POD_DOCUMENT` among them where `gets_rules`.
    service
        Name of the mount and of the well-known paths.
    gpus
        GPUs that the request names; None means the file's.
    """
    wanted = config.gpus if gpus is None else gpus
    files = {each.name: each.content for each in host.initdata}
    if gets_rules(host):
        files[POLICY_FILE] = rules_text()
    document = MeasurementDocument(
        service=service,
        config_digest=config_digest,
        containers=tuple(
            MeasuredContainer(name=each.name, image=each.image) for each in config.containers
        ),
        documents={name: _digest(text.encode()) for name, text in documents.items()},
        guest_image=images.guest,
        shim_image=images.shim,
        debug=debug,
        gpus=wanted,
        host=MeasuredHost(
            tee=host.tee,
            tee_unit=host.tee_unit,
            runtime_class_name=host.runtime_class_name,
            network_isolation=host.network_isolation,
            sizing=MeasuredSizing(
                overhead_cpu_milli=host.sizing.overhead_cpu_milli,
                overhead_memory_mb=host.sizing.overhead_memory_mb,
            ),
            gpu_resource=host.gpu.resource if host.gpu and wanted else None,
            gpu_device_class=host.gpu.device_class if host.gpu and wanted else None,
            initdata={name: _digest(content.encode()) for name, content in files.items()},
        ),
    )
    if host.tee is TEE.NONE or host.tee_unit is not TEEUnit.POD:
        return Measurement(document, None)
    text = canonical(document).decode()
    files[DOCUMENT_FILE] = text
    if gets_rules(host):
        files[POLICY_FILE] = policy_text(documents[POD_DOCUMENT])
    else:
        files[POLICY_FILE] += f"\n{POLICY_NAME} := {text}\n"
    return Measurement(document, Initdata(host.tee, initdata_text(host.tee, files)))


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


FILE_ENTRY = "config.yml"
"""Key of the raw bytes of the configuration file, in ``binaryData``."""
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
    """The initdata; None if none is measured."""
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
