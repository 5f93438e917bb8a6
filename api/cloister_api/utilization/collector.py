"""Collects utilization: asks the kubelet of each node that runs an enclave which serves.

One facade of several does so, with one request for each node. A node that does not answer leaves a
gap in the series of its containers; nothing is guessed.
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
"""Name of the task in the ledger."""
PATH = "metrics/resource"
"""Path of the kubelet; an admission policy lets the facade ask for no other."""
AT_ONCE = 8
"""Nodes that are asked at the same time."""
PAGE = 1_000
"""Containers whose sums one transaction adds: others wait for no longer."""
PERIODS = 4
"""A gap of so many periods between two looks stays a gap."""
PRUNE_SECONDS = 600.0
"""Seconds between two looks for what is too old."""


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """An enclave that serves."""

    container: str
    """Identifier of its container."""
    enclave: CachedEnclave
    """The enclave; its Pod has the same name."""


class UtilizationCollector:
    """Looks at every Pod that serves, again and again."""

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
        """Prepare it.

        Parameters
        ----------
        client
            Client whose user may ask kubelets for their figures.
        cache
            Custom resources in memory.
        store
            Where sums go.
        lease
            Says whether this facade is the one that collects.
        clock
            The clock.
        every
            Seconds between two looks.
        """
        self._client = client
        self._cache = cache
        self._store = store
        self._lease = lease
        self._clock = clock
        self._every = every
        self._looks: dict[tuple[Place, str], PodSample] = {}
        self._silent: set[str] = set()
        self._pruned = 0.0

    async def run(self) -> None:
        """Collect until cancelled."""
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self.look()
            except SQLAlchemyError:  # the next look finds the same, and the counters went on
                logger.exception("utilization could not be written")
            spent = asyncio.get_running_loop().time() - began
            await asyncio.sleep(max(self._every - spent, self._every / 10))

    async def look(self) -> None:
        """Look at every Pod that serves, if it is this facade that does so.

        Raises
        ------
        SQLAlchemyError
            When the ledger does not respond.
        """
        if not self._cache.ready or not await self._lease.hold(self._clock()):
            self._looks.clear()
            return
        nodes = self._targets()
        limit = asyncio.Semaphore(AT_ONCE)
        found = await asyncio.gather(
            *(self._of_node(node, targets, limit) for node, targets in nodes.items())
        )
        self._silent &= nodes.keys()
        present = {looked_at(target) for targets in nodes.values() for target in targets}
        self._looks = {key: look for key, look in self._looks.items() if key in present}
        await self._write([stretch for stretches in found for stretch in stretches])
        await self._prune()

    def _targets(self) -> Mapping[str, list[ScrapeTarget]]:
        """Return the enclaves that serve, by node."""
        nodes: defaultdict[str, list[ScrapeTarget]] = defaultdict(list)
        for entry in self._cache.containers.all():
            active = entry.value.container.status.active_enclave
            enclave = self._cache.enclaves.get(active, entry.namespace) if active else None
            if enclave is not None and enclave.value.node:
                nodes[enclave.value.node].append(ScrapeTarget(entry.value.id, enclave.value))
        return nodes

    async def _of_node(
        self, node: str, targets: list[ScrapeTarget], limit: asyncio.Semaphore
    ) -> list[UsageInterval]:
        """Ask a node, and answer what its containers used since the look before."""
        try:
            async with limit:
                text = await self._client.node_text(node, PATH)
        except KubeError as error:
            if node not in self._silent:
                self._silent.add(node)
                logger.warning(
                    "no utilization of what runs on node %s: %s; the facade needs the right to get "
                    "nodes/proxy, and the API server a way to the kubelet",
                    node,
                    error,
                )
            return []
        self._silent.discard(node)
        resources = read_resources(text)
        now = self._clock().timestamp()
        stretches = (self._compared(target, resources, now) for target in targets)
        return [stretch for stretch in stretches if stretch is not None]

    def _compared(
        self,
        target: ScrapeTarget,
        resources: Mapping[Place, Mapping[str, ResourceReading]],
        now: float,
    ) -> UsageInterval | None:
        """Compare a Pod with the look before."""
        enclave = target.enclave
        all_readings = resources.get((enclave.namespace, enclave.name), {})
        names = all_readings.keys() & set(enclave.containers)
        look = PodSample(now, {name: all_readings[name] for name in names})
        key, longest = looked_at(target), PERIODS * self._every
        before = self._looks.get(key)
        if before and now - before.at <= longest and not is_newer(before, look):
            return None
        self._looks[key] = look
        return interval_between(
            before,
            look,
            container=target.container,
            cpus=enclave.cpus,
            memory_mb=enclave.memory_mb,
            longest=longest,
        )

    async def _write(self, stretches: list[UsageInterval]) -> None:
        for begin in range(0, len(stretches), PAGE):
            sums: dict[tuple[int, str, int], list[int]] = {}
            for stretch in stretches[begin : begin + PAGE]:
                add_interval(sums, stretch)
            await self._store.add(sums)

    async def _prune(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._pruned >= PRUNE_SECONDS or not self._pruned:
            await self._store.prune(self._clock())
            self._pruned = now


def looked_at(target: ScrapeTarget) -> tuple[Place, str]:
    """Return what a look is kept under: Pods may have the same name one after the other."""
    enclave = target.enclave
    return (enclave.namespace, enclave.name), enclave.uid
