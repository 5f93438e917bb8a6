"""The RoleBindings that give operator and facade their rights in an organization's namespace."""

from collections.abc import Mapping
from typing import Any, Final

from cloister_crds.names import MANAGED_BY, MANAGED_BY_LABEL, ORGANIZATION_LABEL, distinct_label

__all__ = ["API_ROLE", "DEFAULT_ACCOUNTS", "OPERATOR_ROLE", "build_role_bindings"]

OPERATOR_ROLE: Final = "cloister-operator-organization"
"""ClusterRole of the operator; the admission policy knows it by this name."""
API_ROLE: Final = "cloister-api-organization"
"""ClusterRole of the facade; likewise."""
DEFAULT_ACCOUNTS: Final = {OPERATOR_ROLE: "cloister-operator", API_ROLE: "cloister-api"}
"""ClusterRole -> the account that it is bound to, as the manifests name it."""
_GROUP = "rbac.authorization.k8s.io"


def build_role_bindings(
    organization: str,
    namespace: str,
    *,
    operator_namespace: str,
    accounts: Mapping[str, str] = DEFAULT_ACCOUNTS,
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
    accounts
        ClusterRole -> name of the account that it is bound to, the operator's own first.

    Returns
    -------
    list[dict[str, Any]]
        Manifests for server-side apply. Each has the name of the ClusterRole that it binds.
    """
    labels = {MANAGED_BY_LABEL: MANAGED_BY, ORGANIZATION_LABEL: distinct_label(organization)}
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
        for role, account in accounts.items()
    ]
