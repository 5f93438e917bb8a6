"""A cache of encoded records: each is kept while the objects it follows from are the same.

Used by the list of containers, the request that clients poll. Objects in the cluster cache are
replaced and never changed, so that "the same object" means "the same record".
"""

from dataclasses import dataclass

from cloister_api.cache import CachedContainer
from cloister_api.records.container import container_record
from cloister_api.wire.json_response import encode
from cloister_crds.kinds import Deployment, Organization

__all__ = ["Encoder"]

KEPT = 50_000
"""Most records that are kept; beyond that the cache starts from scratch."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """An encoded record and the objects it follows from."""

    held: CachedContainer
    """The container."""
    organization: Organization
    """The organization."""
    deployment: Deployment | None
    """The deployment; None = there was none."""
    content: bytes
    """The record as JSON."""


class Encoder:
    """Encodes records and keeps them."""

    def __init__(self, containers_domain: str) -> None:
        self._domain = containers_domain
        self._kept: dict[str, Encoded] = {}

    def record(
        self, held: CachedContainer, organization: Organization, deployment: Deployment | None
    ) -> bytes:
        """Return the record of a container as JSON.

        Parameters
        ----------
        held
            The container.
        organization
            The Organization that owns its namespace.
        deployment
            The Deployment of its repository; None = not seen yet.
        """
        uid = held.container.metadata.uid
        kept = self._kept.get(uid)
        if (
            kept is not None
            and kept.held is held
            and kept.organization is organization
            and kept.deployment is deployment
        ):
            return kept.content
        content = encode(
            container_record(held, organization, deployment, containers_domain=self._domain)
        )
        if len(self._kept) >= KEPT:
            self._kept.clear()
        self._kept[uid] = Encoded(held, organization, deployment, content)
        return content

    def records(
        self, parts: list[tuple[CachedContainer, Organization, Deployment | None]]
    ) -> bytes:
        """Return records as a JSON array."""
        return b"[" + b",".join(self.record(*part) for part in parts) + b"]"
