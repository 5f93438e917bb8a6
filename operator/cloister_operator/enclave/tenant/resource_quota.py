"""The ResourceQuota that bounds how many objects an organization may create."""

from typing import Any

from cloister_crds.installation import DefaultLimits
from cloister_crds.kinds import Organization
from cloister_crds.lifecycle.admission.quotas import quota_counts
from cloister_crds.names import MANAGED_BY, MANAGED_BY_LABEL, ORGANIZATION_LABEL, distinct_label

__all__ = ["build_resource_quota"]

NAME = "cloister-limits"


def build_resource_quota(organization: Organization, defaults: DefaultLimits) -> dict[str, Any]:
    """Build the ResourceQuota of an organization.

    Parameters
    ----------
    organization
        The Organization.
    defaults
        Limits where it names none.

    Returns
    -------
    dict[str, Any]
        Manifest for server-side apply.
    """
    counts = quota_counts(organization.spec.limits, defaults)
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {
            "name": NAME,
            "namespace": organization.spec.namespace,
            "labels": {
                MANAGED_BY_LABEL: MANAGED_BY,
                ORGANIZATION_LABEL: distinct_label(organization.metadata.name),
            },
        },
        "spec": {"hard": {name: str(most) for name, most in counts.items()}},
    }
