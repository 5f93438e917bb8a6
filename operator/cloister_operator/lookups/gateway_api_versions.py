"""Finds the versions of the Gateway API's kinds that the cluster serves, once at the start."""

import asyncio
import logging
from dataclasses import dataclass

from cloister_clients.kube import KindRef, KubeClient, NotFound, Unavailable
from cloister_clients.kube.kinds import (
    CUSTOM_RESOURCE_DEFINITION,
    REFERENCE_GRANTS,
    TLS_ROUTES,
)

__all__ = ["OUTDATED_REMEDY", "GatewayKinds", "GatewayKindsMissing", "find_gateway_kinds"]

logger = logging.getLogger(__name__)

OUTDATED_REMEDY = (
    "install the CRDs of the Gateway API 1.5 or newer, in which both kinds are v1, and restart the "
    "operator"
)
"""What to do about kinds that are outdated."""
_RETRY = 2.0
"""Seconds until a server that did not respond is tried again."""


class GatewayKindsMissing(Exception):  # noqa: N818 - it names the state
    """The settings name a Gateway, and the cluster lacks a kind that routes requests to it."""


@dataclass(frozen=True, slots=True)
class GatewayKinds:
    """The kinds of the Gateway API as this cluster serves them."""

    route: KindRef
    """TLSRoute."""
    grant: KindRef
    """ReferenceGrant."""

    @property
    def outdated(self) -> str:
        """What the cluster serves in an older version alone; "" = nothing.

        A gateway may know the newest version alone: it then sees none of our routes, and nothing
        says so but the condition `Routed` that stays pending.
        """
        pairs = ((self.route, TLS_ROUTES[0]), (self.grant, REFERENCE_GRANTS[0]))
        older = [
            f"{kind.kind} as {kind.version} and not as {best.version}"
            for kind, best in pairs
            if kind.version != best.version
        ]
        if not older:
            return ""
        return (
            f"the cluster serves {', '.join(older)}: a gateway that knows only the newer version "
            "does not see these objects, and a later release of Cloister will not write them"
        )


async def find_gateway_kinds(client: KubeClient) -> GatewayKinds:
    """Find the kinds; a server that does not respond is tried again.

    Raises
    ------
    GatewayKindsMissing
        When the cluster lacks a kind, or serves only versions that are not supported.
    KubeError
        When the server refuses.
    """
    return GatewayKinds(
        route=await _served(client, TLS_ROUTES), grant=await _served(client, REFERENCE_GRANTS)
    )


async def _served(client: KubeClient, versions: tuple[KindRef, ...]) -> KindRef:
    """Return the best version that is served."""
    crd = f"{versions[0].plural}.{versions[0].group}"
    known = ", ".join(each.version for each in versions)
    try:
        served = await _versions(client, crd)
    except NotFound:
        raise GatewayKindsMissing(
            f"gateway: the cluster has no {versions[0].kind} ({crd}); install the CRDs of the "
            f"Gateway API, with {versions[0].kind} in one of the versions {known}, or leave out "
            "the setting gateway"
        ) from None
    for each in versions:
        if each.version in served:
            return each
    found = ", ".join(sorted(served)) or "nothing"
    raise GatewayKindsMissing(
        f"gateway: the cluster serves {versions[0].kind} as {found}, and one of {known} is needed; "
        "install other CRDs of the Gateway API, or leave out the setting gateway"
    )


async def _versions(client: KubeClient, crd: str) -> set[str]:
    """Read which versions of a kind are served."""
    while True:
        try:
            body = await client.get(CUSTOM_RESOURCE_DEFINITION, crd)
        except Unavailable as error:
            logger.warning("cannot read %s: %s", crd, error)
            await asyncio.sleep(_RETRY)
        else:
            return {each["name"] for each in body["spec"]["versions"] if each["served"]}
