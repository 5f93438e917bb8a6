"""The ResourceQuota that bounds how many objects an organization may create."""

from collections.abc import Mapping
from typing import Any

from cloister_crds.installation import DefaultLimits
from cloister_crds.kinds import Organization
from cloister_crds.lifecycle.admission.quotas import quota_counts
from cloister_crds.names import MANAGED_BY, MANAGED_BY_LABEL, ORGANIZATION_LABEL, distinct_label

__all__ = ["QUOTA", "build_resource_quota", "is_counted"]

QUOTA = "cloister-limits"
"""Name of the quota."""


def build_resource_quota(
    organization: Organization, defaults: DefaultLimits, *, counted: bool
) -> dict[str, Any]:
    """Build the ResourceQuota of an organization.

    Parameters
    ----------
    organization
        The Organization.
    defaults
        Limits where it names none.
    counted
        Whether the cluster counts objects of our kinds already.

    Returns
    -------
    dict[str, Any]
        Manifest for server-side apply.
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
