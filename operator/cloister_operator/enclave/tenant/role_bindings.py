"""The RoleBindings that give operator and facade their rights in an organization's namespace."""

from typing import Any

from cloister_crds.names import MANAGED_BY, MANAGED_BY_LABEL, ORGANIZATION_LABEL, host_label

__all__ = ["build_role_bindings"]

_ACCOUNTS = {
    "cloister-operator-organization": "cloister-operator",
    "cloister-api-organization": "cloister-api",
}
"""ClusterRole -> whom it is bound to; the admission policy knows both by these names."""
_GROUP = "rbac.authorization.k8s.io"


def build_role_bindings(
    organization: str, namespace: str, *, operator_namespace: str
) -> list[dict[str, Any]]:
    """Build the RoleBindings, the operator's own first: it needs it for the other guards.

    Parameters
    ----------
    organization
        Slug of the Organization.
    namespace
        Its namespace.
    operator_namespace
        Namespace of the two accounts.

    Returns
    -------
    list[dict[str, Any]]
        Manifests for server-side apply. Each has the name of the ClusterRole that it binds.
    """
    labels = {MANAGED_BY_LABEL: MANAGED_BY, ORGANIZATION_LABEL: host_label(organization)}
    return [
        {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": role, "namespace": namespace, "labels": labels},
            "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role},
            "subjects": [
                {"kind": "ServiceAccount", "name": account, "namespace": operator_namespace}
            ],
        }
        for role, account in _ACCOUNTS.items()
    ]
