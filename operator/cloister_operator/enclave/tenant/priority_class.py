"""The priority of Pods that wait for the GPUs of their predecessor."""

from typing import Any

from cloister_crds.names import MANAGED_BY, MANAGED_BY_LABEL

__all__ = ["SUCCESSOR", "build_priority_class"]

SUCCESSOR = "cloister-successor"
"""Name of the PriorityClass."""
VALUE = 1000
"""Above 0, which Pods without a class have, so that the scheduler asks for these first."""


def build_priority_class() -> dict[str, Any]:
    """Build the PriorityClass; it takes nothing away from Pods that run.

    Returns
    -------
    dict[str, Any]
        Manifest for server-side apply (Kubernetes, "Non-preempting PriorityClass").
    """
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": SUCCESSOR, "labels": {MANAGED_BY_LABEL: MANAGED_BY}},
        "value": VALUE,
        "preemptionPolicy": "Never",
        "globalDefault": False,
        "description": "Enclaves that wait for the GPUs of the one that they take over from.",
    }
