"""The vectors of tests/data/attestation, applied as their README says."""

import copy
import json
from pathlib import Path
from typing import Any, Final

__all__ = ["BASES", "CLIENTS", "FOLDER", "VECTORS", "applied"]

FOLDER: Final = Path(__file__).parents[1] / "data" / "attestation"
CLIENTS: Final[dict[str, dict[str, Any]]] = json.loads((FOLDER / "clients.json").read_text())
"""What the client of each base knows."""
VECTORS: Final[list[dict[str, Any]]] = json.loads((FOLDER / "vectors.json").read_text())
BASES: Final[dict[str, dict[str, Any]]] = {
    name: json.loads((FOLDER / f"base-{name}.json").read_text()) for name in CLIENTS
}
"""The honest bundles, by name."""


def applied(vector: dict[str, Any], text: bytes) -> bytes:
    """Return the document of a vector."""
    if "replace" in vector:
        old, new = (each.encode() for each in vector["replace"])
        assert old in text
        return text.replace(old, new, 1)
    if not {"set", "remove"} & vector.keys():
        return text
    document = json.loads(text)
    for edit in vector.get("set", ()):
        holder, key = _at(document, edit["pointer"])
        holder[key] = copy.deepcopy(edit["value"])
    for pointer in vector.get("remove", ()):
        holder, key = _at(document, pointer)
        del holder[key]
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def _at(document: Any, pointer: str) -> tuple[Any, Any]:
    """Return what holds the value of a pointer, and the value's key or index in it."""
    *path, last = pointer.split("/")[1:]
    for part in path:
        document = document[int(part) if isinstance(document, list) else part]
    return document, int(last) if isinstance(document, list) else last
