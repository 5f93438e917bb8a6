"""How containers are: from the facade's cache, and their Events from the cluster."""

from collections.abc import Iterable

from cloister_api.cache import CachedContainer, CachedEnclave, ClusterCache
from cloister_api.records.container_status import candidate_of, event_record, status_record
from cloister_api.records.managers import manager_records
from cloister_api.schemas.status_responses import (
    ContainerStatusResponse,
    EventResponse,
    ManagerResponse,
)
from cloister_api.services.containers.refusals import api_field
from cloister_clients.kube import KubeClient
from cloister_clients.kube.events import Object
from cloister_clients.kube.kinds import EVENT

__all__ = ["ContainerStatuses"]

MAX_EVENTS = 100
"""Most Events that are shown."""
MAX_READ = 1000
"""Most Events that are read to find the newest."""


class ContainerStatuses:
    """Reports how containers are."""

    def __init__(
        self, client: KubeClient, cache: ClusterCache, gitops_managers: Iterable[str]
    ) -> None:
        self._client = client
        self._cache = cache
        self._gitops = tuple(gitops_managers)

    def of(self, held: CachedContainer) -> tuple[ContainerStatusResponse, str]:
        """Return how a container is, and the version of that.

        The version changes with the Container and each Enclave that is shown. No object has it, so
        it fits no If-Match.
        """
        status = held.container.status
        serving = self._enclave(held, status.active_enclave)
        candidate = self._enclave(held, candidate_of(status))
        shown = [each.version for each in (serving, candidate) if each is not None]
        record = status_record(held, serving, candidate, self.managers_of(held))
        return record, f'W/"{".".join([held.version, *shown])}"'

    def managers_of(self, held: CachedContainer) -> list[ManagerResponse]:
        """Return the GitOps tools that manage fields of a container, by name."""
        return manager_records(held.owners, self._gitops, api_field)

    def _enclave(self, held: CachedContainer, name: str) -> CachedEnclave | None:
        """Return the Enclave of a name, if it is the Container's; None = the cache has none."""
        meta = held.container.metadata
        entry = self._cache.enclaves.in_namespace(meta.namespace or "").get(name)
        if entry is None or entry.value.container_uid != meta.uid:
            return None
        return entry.value

    async def events(self, held: CachedContainer) -> list[EventResponse]:
        """Return the newest Events about a container, newest first.

        Raises
        ------
        KubeError
            When the cluster does not respond.
        """
        meta = held.container.metadata
        found: list[Object] = []
        async for page in self._client.list_pages(
            EVENT, meta.namespace, field_selector=f"regarding.uid={meta.uid}"
        ):
            found += page.items
            if len(found) >= MAX_READ:
                break
        records = sorted(map(event_record, found), key=lambda each: each.at, reverse=True)
        return records[:MAX_EVENTS]
