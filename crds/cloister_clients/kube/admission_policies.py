"""The admission policies of an installation, by name, and whether they are in force.

Without them an account with rights in an organization's namespace can enter enclaves.
"""

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["POLICIES", "lapsed_policies"]

POLICIES = (
    "cloister-enclave-parts",
    "cloister-enclave-tokens",
    "cloister-facade",
    "cloister-immutable",
    "cloister-no-entry",
    "cloister-operator",
    "cloister-operator-cluster",
    "cloister-organizations",
    "cloister-secret-finalizers",
    "cloister-snapshots",
    "cloister-status",
    "cloister-tenant-metadata",
    "cloister-tokens",
)
"""Names of the ValidatingAdmissionPolicies (`crds/manifests/policies`)."""


def lapsed_policies(
    policies: Iterable[Mapping[str, Any]], bindings: Iterable[Mapping[str, Any]]
) -> dict[str, str]:
    """Return the policies that are not in force, by name, and why.

    Parameters
    ----------
    policies
        The ValidatingAdmissionPolicies of the cluster.
    bindings
        Its ValidatingAdmissionPolicyBindings.
    """
    found = {each["metadata"]["name"]: each["spec"] for each in policies}
    denying = {
        each["spec"]["policyName"]
        for each in bindings
        if "Deny" in each["spec"].get("validationActions", ())
    }
    lapsed = {}
    for name in POLICIES:
        if name not in found:
            lapsed[name] = "it does not exist"
        elif found[name].get("failurePolicy", "Fail") != "Fail":
            lapsed[name] = "its failurePolicy is not Fail"
        elif name not in denying:
            lapsed[name] = "no binding with the action Deny names it"
    return lapsed
