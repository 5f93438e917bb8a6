"""The namespace of an Organization."""

from typing import Any

from cloister_crds.names import MANAGED_BY, MANAGED_BY_LABEL, ORGANIZATION_LABEL, distinct_label

__all__ = ["build_namespace"]


def build_namespace(organization: str, namespace: str) -> dict[str, Any]:
    """Build the namespace as the operator creates it (it never changes an existing one).

    Parameters
    ----------
    organization
        Slug of the Organization.
    namespace
        Name of the namespace.

    Returns
    -------
    dict[str, Any]
        Manifest for a create. Its labels name the owner. Pod Security is ``privileged``, since a
        file may add capabilities that ``baseline`` refuses; the admission policy decides who may
        create Pods there (Kubernetes, "Pod Security Standards").
    """
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": namespace,
            "labels": {
                MANAGED_BY_LABEL: MANAGED_BY,
                ORGANIZATION_LABEL: distinct_label(organization),
                "pod-security.kubernetes.io/enforce": "privileged",
            },
        },
    }
