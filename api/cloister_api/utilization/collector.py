"""Collects utilization: reads the usage of the Pods of active enclaves from the Metrics API.

One facade of several does so, with one request for all of them; `gpu_collector` does the same at
the exporters of GPUs, independently of it. What the Metrics API has no usage of is a gap in the
series of its container; nothing is interpolated.
"""

import asyncio
import logging
from collections.abc import Mapping
from http import HTTPStatus

from sqlalchemy.exc import SQLAlchemyError

from cloister_api.cache import CachedEnclave, ClusterCache
from cloister_api.ledger.leases import Lease
from cloister_api.utilization.buckets import (
    GpuInterval,
    SeriesKey,
    UsageInterval,
    add_interval,
    interval_of,
)
from cloister_api.utilization.gpus import GpuCollector, ScrapeTarget, sample_key
from cloister_api.utilization.samples import Place, PodUsage, read_pod_metrics
from cloister_api.utilization.store import UtilizationStore
from cloister_clients.clock import Clock
from cloister_clients.foreign_json import parse_apart
from cloister_clients.kube import KubeClient, KubeError
from cloister_clients.kube.kinds import POD_METRICS
from cloister_crds.names import ENCLAVE_LABEL

logger = logging.getLogger(__name__)

LEASE = "utilization"
"""Name of the lease in the ledger."""
LARGEST = 64 << 20
"""Most bytes of a list of usages, which is some 20,000 enclaves."""
PAGE = 1_000
"""Containers whose sums one transaction adds, to keep others from waiting long."""
PERIODS = 4
"""Periods that the lease is held, and between two samples of GPUs after which there is a gap."""
PRUNE_SECONDS = 600.0
"""Seconds between two deletions of expired buckets."""
REMEDIES: dict[int, str] = {
    HTTPStatus.NOT_FOUND: "the cluster has no Metrics API: install metrics-server",
    HTTPStatus.FORBIDDEN: "the facade may not read it: bind the ClusterRole "
    "cloister-api-utilization to its account",
}
"""What helps, by the status of a refusal."""
OTHERWISE = "look at the APIService v1beta1.metrics.k8s.io and at metrics-server"
"""What helps otherwise."""


class UtilizationCollector:
    """Reads the usage of active enclaves periodically."""

    def __init__(
        self,
        client: KubeClient,
        cache: ClusterCache,
        store: UtilizationStore,
        lease: Lease,
        clock: Clock,
        gpus: GpuCollector,
        *,
        every: float,
    ) -> None:
        """Prepare the loop.

        Parameters
        ----------
        client
            Client whose user may list the Pods of the Metrics API.
        cache
            Custom resources in memory.
        every
            Seconds between two requests.
        """
        self._client = client
        self._cache = cache
        self._store = store
        self._lease = lease
        self._clock = clock
        self._gpus = gpus
        self._every = every
        self._began: float | None = None
        self._counted: dict[tuple[Place, str], float] = {}
        self._trouble = ""
        self._pruned = 0.0

    async def run(self) -> None:
        """Collect until cancelled."""
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self.collect()
            except SQLAlchemyError:  # a gap, as when nobody collects
                logger.exception("utilization could not be written")
            spent = asyncio.get_running_loop().time() - began
            await asyncio.sleep(max(self._every - spent, self._every / 10))

    async def collect(self) -> None:
        """Count what all active enclaves used, if this facade holds the lease.

        Raises
        ------
        SQLAlchemyError
            When the ledger does not respond.
        """
        now = self._clock()
        if not self._cache.ready or not await self._lease.hold(now):
            # What was used until then is the other facade's to count.
            self._began = None
            self._counted.clear()
            self._gpus.clear()
            return
        if self._began is None:
            self._began = now.timestamp()
        targets = self._targets()
        gpus, usages = await asyncio.gather(
            self._gpus.collect(targets), self._usages(wanted=bool(targets))
        )
        await self._write([*gpus, *self._intervals(targets, usages)])
        await self._prune()

    def _targets(self) -> list[ScrapeTarget]:
        """Return the active enclaves."""
        targets: list[ScrapeTarget] = []
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
            if enclave is not None:
                targets.append(ScrapeTarget((organization, entry.value.id), enclave.value))
        return targets

    async def _usages(self, *, wanted: bool) -> Mapping[Place, PodUsage]:
        """Ask the Metrics API for the usage of all enclaves; empty if it gives none."""
        if not wanted:
            return {}
        try:
            content = await self._client.list_content(
                POD_METRICS, label_selector=ENCLAVE_LABEL, largest=LARGEST
            )
            usages = await parse_apart(read_pod_metrics, content)
        except KubeError as error:
            self._report(str(error), REMEDIES.get(error.status, OTHERWISE))
            return {}
        except ValueError as error:
            self._report(str(error), OTHERWISE)
            return {}
        self._trouble = ""
        return usages

    def _report(self, trouble: str, remedy: str) -> None:
        """Log why nothing is known, once until something is known again or the remedy changes."""
        if self._trouble != remedy:
            logger.warning("no utilization of containers: %s (%s)", remedy, trouble)
        self._trouble = remedy

    def _intervals(
        self, targets: list[ScrapeTarget], usages: Mapping[Place, PodUsage]
    ) -> list[UsageInterval]:
        """Return what was used since it was last counted."""
        counted: dict[tuple[Place, str], float] = {}
        intervals: list[UsageInterval] = []
        now = self._clock().timestamp()
        for target in targets:
            enclave, key = target.enclave, sample_key(target)
            since = counted[key] = self._counted.get(key, self._begin(enclave))
            usage = usages.get((enclave.namespace, enclave.name))
            interval = usage and interval_of(
                usage,
                enclave.containers,
                since=since,
                now=now,
                container=target.container,
                cpus=enclave.cpus,
                memory_mb=enclave.memory_mb,
            )
            if interval:
                counted[key] = interval.end
                intervals.append(interval)
        self._counted = counted
        return intervals

    def _begin(self, enclave: CachedEnclave) -> float:
        """Return when the usage of an enclave that was not seen before begins to count."""
        promoted = enclave.promoted_at.timestamp() if enclave.promoted_at else 0.0
        return max(promoted, self._began or 0.0)

    async def _write(self, intervals: list[UsageInterval | GpuInterval]) -> None:
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
