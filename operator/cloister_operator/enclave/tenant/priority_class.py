"""The priority of Pods that wait for the GPUs of what they replace (Recreate strategy)."""

from typing import Any

from cloister_crds.names import MANAGED_BY, MANAGED_BY_LABEL

__all__ = ["PRIORITY_CLASS", "build_priority_class"]

PRIORITY_CLASS = "cloister-successor"
"""Name of the PriorityClass."""
VALUE = 1000
"""Above 0, which Pods without a class have, so that the scheduler serves these first."""


def build_priority_class() -> dict[str, Any]:
    """Build the PriorityClass; it preempts no running Pod.

    Returns
    -------
    dict[str, Any]
        Manifest for server-side apply (Kubernetes, "Non-preempting PriorityClass").
    """
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": PRIORITY_CLASS, "labels": {MANAGED_BY_LABEL: MANAGED_BY}},
        "value": VALUE,
        "preemptionPolicy": "Never",
        "globalDefault": False,
        "description": "Enclaves that wait for the GPUs of the one that they take over from.",
    }
