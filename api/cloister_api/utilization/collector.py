"""Collects utilization: scrapes the kubelet of each node that runs an active enclave.

One facade of several does so, with one request for each node. A node that does not respond leaves a
gap in the series of its containers; nothing is interpolated.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy.exc import SQLAlchemyError

from cloister_api.cache import CachedEnclave, ClusterCache
from cloister_api.ledger.leases import Lease
from cloister_api.utilization.buckets import (
    PodSample,
    SeriesKey,
    UsageInterval,
    add_interval,
    interval_between,
    is_newer,
)
from cloister_api.utilization.exposition import Place, ResourceReading, read_resources
from cloister_api.utilization.store import UtilizationStore
from cloister_clients.clock import Clock
from cloister_clients.kube import KubeClient, KubeError

__all__ = ["LEASE", "PERIODS", "UtilizationCollector"]

logger = logging.getLogger(__name__)

LEASE = "utilization"
"""Name of the lease in the ledger."""
PATH = "metrics/resource"
"""Path of the kubelet; an admission policy allows the facade no other one."""
AT_ONCE = 8
"""Nodes that are scraped at the same time."""
PAGE = 1_000
"""Containers whose sums one transaction adds, to keep others from waiting long."""
PERIODS = 4
"""Periods between two samples after which the time between stays a gap."""
PRUNE_SECONDS = 600.0
"""Seconds between two deletions of expired buckets."""


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """An active enclave."""

    container: SeriesKey
    """Identifiers of its organization and its container."""
    enclave: CachedEnclave
    """The enclave; its Pod has the same name."""


class UtilizationCollector:
    """Samples the Pods of active enclaves periodically."""

    def __init__(
        self,
        client: KubeClient,
        cache: ClusterCache,
        store: UtilizationStore,
        lease: Lease,
        clock: Clock,
        *,
        every: float,
    ) -> None:
        """Prepare the loop.

        Parameters
        ----------
        client
            Client whose user may read the metrics of kubelets.
        cache
            Custom resources in memory.
        store
            Where sums are written.
        lease
            Decides which facade collects.
        clock
            The clock.
        every
            Seconds between two samples.
        """
        self._client = client
        self._cache = cache
        self._store = store
        self._lease = lease
        self._clock = clock
        self._every = every
        self._samples: dict[tuple[Place, str], PodSample] = {}
        self._silent: set[str] = set()
        self._pruned = 0.0

    async def run(self) -> None:
        """Collect until cancelled."""
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self.collect()
            except SQLAlchemyError:  # the next sample includes the same, as counters only grow
                logger.exception("utilization could not be written")
            spent = asyncio.get_running_loop().time() - began
            await asyncio.sleep(max(self._every - spent, self._every / 10))

    async def collect(self) -> None:
        """Sample the Pods of all active enclaves, if this facade holds the lease.

        Raises
        ------
        SQLAlchemyError
            When the ledger does not respond.
        """
        if not self._cache.ready or not await self._lease.hold(self._clock()):
            self._samples.clear()
            return
        nodes = self._targets()
        limit = asyncio.Semaphore(AT_ONCE)
        found = await asyncio.gather(
            *(self._of_node(node, targets, limit) for node, targets in nodes.items())
        )
        self._silent &= nodes.keys()
        present = {sample_key(target) for targets in nodes.values() for target in targets}
        self._samples = {key: sample for key, sample in self._samples.items() if key in present}
        await self._write([interval for intervals in found for interval in intervals])
        await self._prune()

    def _targets(self) -> Mapping[str, list[ScrapeTarget]]:
        """Return the active enclaves by node."""
        nodes: defaultdict[str, list[ScrapeTarget]] = defaultdict(list)
        organizations = {
            entry.value.spec.namespace: entry.value.identifier
            for entry in self._cache.organizations.all()
        }
        for entry in self._cache.containers.all():
            organization = organizations.get(entry.namespace)
            if organization is None:
                continue
            active = entry.value.container.status.active_enclave
            enclave = self._cache.enclaves.get(active, entry.namespace) if active else None
            if enclave is not None and enclave.value.node:
                key = (organization, entry.value.id)
                nodes[enclave.value.node].append(ScrapeTarget(key, enclave.value))
        return nodes

    async def _of_node(
        self, node: str, targets: list[ScrapeTarget], limit: asyncio.Semaphore
    ) -> list[UsageInterval]:
        """Scrape a node, and return what its containers used since the sample before."""
        try:
            async with limit:
                text = await self._client.node_text(node, PATH)
        except KubeError as error:
            if node not in self._silent:
                self._silent.add(node)
                logger.warning(
                    "no utilization of containers on node %s: %s; the facade needs permission to "
                    "get nodes/proxy, and the API server a route to the kubelet",
                    node,
                    error,
                )
            return []
        self._silent.discard(node)
        resources = read_resources(text)
        now = self._clock().timestamp()
        intervals = (self._compared(target, resources, now) for target in targets)
        return [interval for interval in intervals if interval is not None]

    def _compared(
        self,
        target: ScrapeTarget,
        resources: Mapping[Place, Mapping[str, ResourceReading]],
        now: float,
    ) -> UsageInterval | None:
        """Compare a Pod with the sample before."""
        enclave = target.enclave
        all_readings = resources.get((enclave.namespace, enclave.name), {})
        names = all_readings.keys() & set(enclave.containers)
        sample = PodSample(now, {name: all_readings[name] for name in names})
        key, longest = sample_key(target), PERIODS * self._every
        before = self._samples.get(key)
        if before and now - before.at <= longest and not is_newer(before, sample):
            return None
        self._samples[key] = sample
        return interval_between(
            before,
            sample,
            container=target.container,
            cpus=enclave.cpus,
            memory_mb=enclave.memory_mb,
            longest=longest,
        )

    async def _write(self, intervals: list[UsageInterval]) -> None:
        for begin in range(0, len(intervals), PAGE):
            sums: dict[tuple[int, SeriesKey, int], list[int]] = {}
            for interval in intervals[begin : begin + PAGE]:
                add_interval(sums, interval)
            await self._store.add(sums)

    async def _prune(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._pruned >= PRUNE_SECONDS or not self._pruned:
            await self._store.prune(self._clock())
            self._pruned = now


def sample_key(target: ScrapeTarget) -> tuple[Place, str]:
    """Return the key of a Pod's samples; its uid, as a later Pod may have the same name."""
    enclave = target.enclave
    return (enclave.namespace, enclave.name), enclave.uid
