"""Limits of an organization's objects: a create beyond one is refused before it writes anything.

The ResourceQuota of the namespace has the same numbers, so that concurrent creates and those by
other doors are refused too (`cloister_crds.lifecycle.admission.quotas`).
"""

from typing import Any

from cloister_api.auth.authenticator import Principal
from cloister_api.errors import forbidden
from cloister_clients.kube import KubeClient, NotFound, Reflector
from cloister_clients.kube.kinds import of
from cloister_crds.installation import DefaultLimits
from cloister_crds.kinds.meta import Resource
from cloister_crds.lifecycle.admission.quotas import effective_limits, quota_reached


async def exists(
    client: KubeClient, cached: Reflector[Any], kind: type[Resource], name: str, namespace: str
) -> bool:
    """Return whether an object exists: the cache may still show one that was just deleted.

    A create of one that does would be counted by the quota until its next sync, and is refused as
    beyond the limit where that is reached, although an earlier attempt may have made it.

    Raises
    ------
    KubeError
        When the cluster does not respond.
    """
    if cached.get(name, namespace) is None:
        return False
    try:
        await client.get(of(kind), name, namespace)
    except NotFound:
        return False
    return True


def limits_of(principal: Principal, defaults: DefaultLimits) -> DefaultLimits:
    """Return the limits that apply to the organization of a principal."""
    return effective_limits(principal.organization.spec.limits, defaults)


def require_place(what: str, used: int, most: int, *, remedy: str = "delete one") -> None:
    """Refuse a create when there is no place for it.

    Parameters
    ----------
    most
        How many there may be.

    Raises
    ------
    ApiError
        403 "quota reached".
    """
    if used >= most:
        raise forbidden(quota_reached(what, used, most, remedy))
