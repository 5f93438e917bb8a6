"""Images that nodes have without a registry, such as those that `kind load` gave them."""

from collections.abc import Iterable
from typing import Any

from cloister_clients.findings import Finding, FindingLevel, warned

__all__ = ["on_every_node", "unless_loaded"]

LOADED = "every node has it; "
REMEDY = "load it on every node that joins, or push it and correct the settings under registry"


def on_every_node(image: str, nodes: Iterable[dict[str, Any]]) -> bool:
    """Return whether there are nodes, and each of them reports an image.

    Parameters
    ----------
    image
        Reference with a digest.
    nodes
        Nodes. A kubelet reports its fifty largest images alone, by their whole names.
    """
    held = [{name for each in _images(node) for name in each.get("names") or ()} for node in nodes]
    return bool(held) and all(image in names for names in held)


def unless_loaded(finding: Finding, image: str, nodes: Iterable[dict[str, Any]]) -> Finding:
    """Return what a registry said of an image, which is no failure where no node needs to ask."""
    if finding.level is not FindingLevel.FAIL or not on_every_node(image, nodes):
        return finding
    return warned(finding.check, LOADED + finding.message, REMEDY)


def _images(node: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (node.get("status") or {}).get("images") or []
    return found
