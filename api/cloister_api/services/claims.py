"""Claims of custom domains, which make each name unique in the cluster.

A claim is an object named after the host, so that two cannot exist. The facade only creates claims
and adopts its own; only the operator releases them. Of generated host names it only reads who has
them: an object has the one that follows from its name, and any other is for the operator to claim.
"""

from cloister_api.errors import ApiError, conflict
from cloister_clients.clock import Clock
from cloister_clients.kube import AlreadyExists, KubeClient, NotFound
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import HostnameClaim
from cloister_crds.kinds.hostnameclaim import ClaimHolder, HostnameClaimSpec
from cloister_crds.kinds.meta import GROUP, ObjectMeta

__all__ = ["HostnameClaims", "hostname_taken"]

ADOPTED_ANNOTATION = f"{GROUP}/adopted-at"
"""When a create adopted its own earlier claim: the new resourceVersion keeps the operator from
releasing a claim that it had found orphaned a moment before."""


class HostnameClaims:
    """The claims of the cluster."""

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def holder(self, hostname: str) -> ClaimHolder | None:
        """Return the holder of a host name; None = it is free.

        Raises
        ------
        KubeError
            When the cluster does not respond.
        """
        try:
            found = await self._client.get(of(HostnameClaim), hostname)
        except NotFound:
            return None
        return HostnameClaim.read(found).spec.holder

    async def claim(self, hostname: str, holder: ClaimHolder) -> None:
        """Claim a host name for a Container, or adopt the claim that it already holds.

        Parameters
        ----------
        hostname
            The host name.
        holder
            The Container, which need not exist yet.

        Raises
        ------
        ApiError
            409 when another Container holds it.
        KubeError
            When the cluster refuses or does not respond.
        """
        claim = HostnameClaim(
            metadata=ObjectMeta(name=hostname), spec=HostnameClaimSpec(holder=holder)
        )
        for _ in range(3):
            try:
                await self._client.create(of(HostnameClaim), claim.manifest())
            except AlreadyExists:
                if await self._adopt(hostname, holder):
                    return
            else:
                return
        raise hostname_taken(hostname)

    async def _adopt(self, hostname: str, holder: ClaimHolder) -> bool:
        present = await self.holder(hostname)
        if present is None:
            return False
        if present != holder:
            raise hostname_taken(hostname)
        patch = {"metadata": {"annotations": {ADOPTED_ANNOTATION: self._clock().isoformat()}}}
        try:
            await self._client.merge_patch(of(HostnameClaim), hostname, patch)
        except NotFound:
            return False
        return True


def hostname_taken(hostname: str) -> ApiError:
    """Build a 409: the host name has another holder."""
    return conflict(
        f"the host name {hostname} is taken; choose another name, or try again when the container "
        "that had it is gone"
    )
