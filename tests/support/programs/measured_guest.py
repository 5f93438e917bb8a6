"""The real guest as a process on this machine, with a measurement of its documents."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloister_crds.measurement import DOCUMENT_VERSION
from dev.cluster.guest import guest_binary, shim_binary

__all__ = ["measured_guest", "measured_shim", "write_measured"]

_ROOT = "measured"
"""Where the guest of these tests finds its measurement: below its working directory."""


def measured_guest() -> Path:
    """Return the guest, which has to run in a folder that `write_measured` filled."""
    return guest_binary("guest-of-tests", root=_ROOT)


def measured_shim() -> Path:
    """Return the shim, likewise."""
    return shim_binary("shim-of-tests", root=_ROOT)


def write_measured(
    folder: Path,
    documents: Mapping[str, dict[str, Any]],
    *,
    unmeasured: dict[str, Any],
    config_file: bytes = b"",
    texts: Mapping[str, str] | None = None,
) -> None:
    """Write documents, what is not measured, and the measurement that names the documents.

    Parameters
    ----------
    unmeasured
        The document of what is not measured.
    texts
        Documents that are not JSON, by the names of their files.
    """
    digests = {}
    written = {name: json.dumps(document) for name, document in documents.items()}
    for name, text in {**written, **(texts or {})}.items():
        (folder / name).write_text(text)
        digests[name] = _digest(text.encode())
    (folder / "unmeasured.json").write_text(json.dumps(unmeasured))
    measurement = {
        "version": DOCUMENT_VERSION,
        "service": "cloister",
        "configDigest": _digest(config_file),
        "documents": digests,
        "gpus": 0,
        "host": {"tee": "None"},
    }
    (folder / _ROOT).mkdir(exist_ok=True)
    (folder / _ROOT / "measurement.json").write_text(json.dumps(measurement))


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
