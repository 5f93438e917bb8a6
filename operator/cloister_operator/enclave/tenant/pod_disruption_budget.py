"""The budget that keeps a node drain from evicting what serves before its replacement does."""

from typing import Any

from cloister_crds.names import (
    ENCLAVE_LABEL,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    ORGANIZATION_LABEL,
    distinct_label,
)

__all__ = ["build_disruption_budget"]

NAME = "cloister-enclaves"
ALL_PODS = 2_147_483_647
"""More Pods than there can be: no eviction is allowed, and the operator moves what must leave."""


def build_disruption_budget(organization: str, namespace: str) -> dict[str, Any]:
    """Build the PodDisruptionBudget of an organization.

    Parameters
    ----------
    organization
        Slug of the Organization.
    namespace
        Its namespace.

    Returns
    -------
    dict[str, Any]
        Manifest for server-side apply. A number is used, since a percentage needs a controller that
        owns the Pods and can be scaled (Kubernetes, "Specifying a Disruption Budget").
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": NAME,
            "namespace": namespace,
            "labels": {
                MANAGED_BY_LABEL: MANAGED_BY,
                ORGANIZATION_LABEL: distinct_label(organization),
            },
        },
        "spec": {
            "minAvailable": ALL_PODS,
            "selector": {"matchExpressions": [{"key": ENCLAVE_LABEL, "operator": "Exists"}]},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
