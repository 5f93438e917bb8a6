"""Checks of the admission policies: whether they are bound, and whether they refuse."""

from typing import Any, Final

from cloister_clients.findings import Finding, failed, passed, warned
from cloister_clients.kube import Forbidden, KubeClient
from cloister_clients.kube.admission_policies import lapsed_policies
from cloister_clients.kube.kinds import POLICY, POLICY_BINDING, SECRET

__all__ = ["check_policies", "try_policy"]

APPLY: Final = "apply crds/manifests/policies of this version, or upgrade the chart"
POLICY_WORDS: Final = "ValidatingAdmissionPolicy 'cloister-"
"""What the API server begins the denial of one of our policies with."""
FORBIDDEN: Final[dict[str, Any]] = {
    "metadata": {
        "name": "cloister-doctor",
        "annotations": {"kubernetes.io/service-account.name": "default"},
    },
    "type": "kubernetes.io/service-account-token",
}
"""What nobody may write in the namespace of an organization, whatever rights they have."""


async def check_policies(client: KubeClient) -> list[Finding]:
    """Check that every policy exists, fails closed and denies.

    Raises
    ------
    KubeError
        When the server does not respond, or refuses.
    """
    policies = await client.list(POLICY)
    bindings = await client.list(POLICY_BINDING)
    lapsed = lapsed_policies(policies.items, bindings.items)
    wrong = [failed(f"policy {name}", why, APPLY) for name, why in lapsed.items()]
    return wrong or [passed("policies", "all admission policies are bound and fail closed")]


async def try_policy(client: KubeClient, namespace: str | None) -> Finding:
    """Try a forbidden write, without anything being kept.

    Parameters
    ----------
    client
        Whoever tries.
    namespace
        Namespace of an organization; None = there is none yet.

    Raises
    ------
    KubeError
        When the server does not respond.
    """
    check = "forbidden write"
    if namespace is None:
        return warned(
            check,
            "no namespace of an organization exists, so that none could be tried",
            "run this again when there is an organization",
        )
    try:
        await client.create(SECRET, FORBIDDEN, namespace, dry_run=True)
    except Forbidden as error:
        # An account of ours is refused by the policy of its account too, and one of both is named.
        if POLICY_WORDS in str(error):
            return passed(check, f"a token of an account is refused in {namespace}")
        return warned(check, f"it could not be tried: {error}", "run this as an administrator")
    return failed(
        check,
        f"{namespace} takes a Secret that the control plane fills with a token of an account",
        APPLY,
    )
