"""Builders of an organization's namespace and of the objects that protect it."""

from collections.abc import Mapping
from typing import Any, Final

from cloister_crds.installation import DefaultLimits
from cloister_crds.kinds import Organization
from cloister_crds.lifecycle.admission.quotas import quota_counts
from cloister_crds.names import (
    ENCLAVE_LABEL,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    ORGANIZATION_LABEL,
    distinct_label,
)


def build_namespace(organization: str, namespace: str) -> dict[str, Any]:
    """Build the namespace as the operator creates it (it never changes an existing one).

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


NAME = "cloister-enclaves"
ALL_PODS = 2_147_483_647
"""More Pods than there can be: no eviction is allowed, and the operator moves what must leave."""


def build_disruption_budget(organization: str, namespace: str) -> dict[str, Any]:
    """Build the PodDisruptionBudget of an organization.

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


PRIORITY_CLASS = "cloister-successor"
"""Name of the PriorityClass."""
VALUE = 1000
"""Above 0, which Pods without a class have, so that the scheduler serves these first."""


def build_priority_class() -> dict[str, Any]:
    """Build the PriorityClass; it preempts no running Pod."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": PRIORITY_CLASS, "labels": {MANAGED_BY_LABEL: MANAGED_BY}},
        "value": VALUE,
        "preemptionPolicy": "Never",
        "globalDefault": False,
        "description": "Enclaves that wait for the GPUs of the one that they take over from.",
    }


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


QUOTA = "cloister-limits"
"""Name of the quota."""


def build_resource_quota(
    organization: Organization, defaults: DefaultLimits, *, counted: bool
) -> dict[str, Any]:
    """Build the ResourceQuota of an organization.

    Parameters
    ----------
    defaults
        Limits where it names none.
    counted
        Whether the cluster counts objects of our kinds already.
    """
    counts = quota_counts(organization.spec.limits, defaults, counted=counted)
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {
            "name": QUOTA,
            "namespace": organization.spec.namespace,
            "labels": {
                MANAGED_BY_LABEL: MANAGED_BY,
                ORGANIZATION_LABEL: distinct_label(organization.metadata.name),
            },
        },
        "spec": {"hard": {name: str(most) for name, most in counts.items()}},
    }


def is_counted(quota: Mapping[str, Any]) -> bool:
    """Return whether a quota's controller has counted all that it names.

    The API server refuses creates of what it has not (`status unknown for quota`).
    """
    # `status.hard` names what it has not counted, too.
    return set(quota["spec"]["hard"]) <= set(quota.get("status", {}).get("used", {}))
