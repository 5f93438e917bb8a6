"""Checks of nodes: what enclaves without a virtual machine of their own need of them."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from cloister_clients.findings import Finding, passed, warned

__all__ = ["check_nodes"]

USER_NAMESPACES: Final = (
    "use Linux 6.3 or newer with containerd 2.0 and runc 1.2 or newer; or Hosts whose Pods are "
    "virtual machines, or that allow a privileged launcher"
)


def check_nodes(nodes: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """Check that nodes are ready, and run Pods in user namespaces of their own."""
    found, good = [], 0
    for node in nodes:
        name, status = node["metadata"]["name"], node.get("status") or {}
        problems = [*_not_ready(name, status), *_without_user_namespaces(name, status)]
        good += not problems
        found += problems
    if good:
        found.append(passed("nodes", f"{good} nodes are ready and have user namespaces"))
    if not found:
        found.append(warned("nodes", "there is no node", "join one: enclaves need a place"))
    return found


def _not_ready(name: str, status: Mapping[str, Any]) -> list[Finding]:
    """Return that a node is not ready."""
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    if conditions.get("Ready") == "True":
        return []
    remedy = f"see why: kubectl describe node {name}"
    return [warned(f"node {name}", "it is not ready", remedy)]


def _without_user_namespaces(name: str, status: Mapping[str, Any]) -> list[Finding]:
    """Return that a node's default runtime has no user namespaces, where the kubelet says so."""
    defaults = [each for each in status.get("runtimeHandlers") or () if not each.get("name")]
    if any((each.get("features") or {}).get("userNamespaces") for each in defaults):
        return []
    info = status.get("nodeInfo") or {}
    runs = f"kernel {info.get('kernelVersion')}, {info.get('containerRuntimeVersion')}"
    return [warned(f"node {name}", f"it has no user namespaces ({runs})", USER_NAMESPACES)]
