"""A cache of encoded records: each is kept while the objects it follows from are the same.

Used by the list of containers, the request that clients poll. Objects in the cluster cache are
replaced and never changed, so that "the same object" means "the same record".
"""

from dataclasses import dataclass

from cloister_api.cache import CachedContainer
from cloister_api.records.container import (
    NO_LINKS,
    RecordSettings,
    ReplacementLinks,
    container_record,
)
from cloister_api.wire import encode
from cloister_crds.kinds import Deployment, Organization

MAX_RECORDS = 50_000
"""Most records that are kept; beyond that the cache starts from scratch."""


@dataclass(frozen=True, slots=True)
class CachedRecord:
    """An encoded record and the objects it follows from."""

    container: CachedContainer
    """The container."""
    organization: Organization
    """The organization."""
    deployment: Deployment | None
    """The deployment; None if there was none."""
    links: ReplacementLinks
    """Containers that it replaces or is replaced by."""
    content: bytes
    """The record as JSON."""


class RecordCache:
    """Encodes records and keeps them."""

    def __init__(self, settings: RecordSettings) -> None:
        self._settings = settings
        self._kept: dict[str, CachedRecord] = {}

    def record(
        self,
        container: CachedContainer,
        organization: Organization,
        deployment: Deployment | None,
        links: ReplacementLinks = NO_LINKS,
    ) -> bytes:
        """Return the record of a container as JSON.

        Parameters
        ----------
        deployment
            The Deployment of its repository; None if not seen yet.
        """
        uid = container.container.metadata.uid
        kept = self._kept.get(uid)
        if (
            kept is not None
            and kept.container is container
            and kept.organization is organization
            and kept.deployment is deployment
            and kept.links == links
        ):
            return kept.content
        content = encode(
            container_record(container, organization, deployment, self._settings, links)
        )
        # Dropped as a whole: records are rebuilt at the next list.
        if len(self._kept) >= MAX_RECORDS:
            self._kept.clear()
        self._kept[uid] = CachedRecord(container, organization, deployment, links, content)
        return content

    def records(
        self,
        parts: list[tuple[CachedContainer, Organization, Deployment | None, ReplacementLinks]],
    ) -> bytes:
        """Return records as a JSON array."""
        return b"[" + b",".join(self.record(*part) for part in parts) + b"]"
