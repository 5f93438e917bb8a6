"""Samples the GPUs of active enclaves, and of whole Hosts, at the exporters that Hosts name."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from cloister_api.cache import CachedEnclave, ClusterCache
from cloister_api.utilization.buckets import GpuInterval, GpuSample, SeriesKey, gpu_interval_between
from cloister_api.utilization.gpu_exporters import GpuExporters
from cloister_api.utilization.gpu_exposition import GpuTotals
from cloister_api.utilization.pod_metrics import Place
from cloister_clients.clock import Clock

__all__ = ["GpuCollector", "HostGpuMetrics", "ScrapeTarget", "sample_key"]

KIB = 1024
"""Bytes of a KiB."""


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """An active enclave."""

    container: SeriesKey
    """Identifiers of its organization and its container."""
    enclave: CachedEnclave
    """The enclave; its Pod has the same name."""


def sample_key(target: ScrapeTarget) -> tuple[Place, str]:
    """Return the key of a Pod's samples; its uid, as a later Pod may have the same name."""
    enclave = target.enclave
    return (enclave.namespace, enclave.name), enclave.uid


class GpuCollector:
    """Reads the exporters of all Hosts that name one."""

    def __init__(
        self, cache: ClusterCache, exporters: GpuExporters, clock: Clock, *, longest: float
    ) -> None:
        """Prepare.

        Parameters
        ----------
        cache
            Custom resources in memory.
        exporters
            Reads exporters.
        clock
            The clock.
        longest
            Seconds between two samples after which the time between is a gap.
        """
        self._cache = cache
        self._exporters = exporters
        self._clock = clock
        self._longest = longest
        self._samples: dict[tuple[Place, str], GpuSample] = {}
        self.hosts: Mapping[str, GpuTotals] = {}
        """What each Host's GPUs did at the last look; Hosts without one are missing."""

    def clear(self) -> None:
        """Forget everything: another facade collects."""
        self._samples.clear()
        self.hosts = {}

    async def collect(self, targets: Iterable[ScrapeTarget]) -> list[GpuInterval]:
        """Sample all Hosts, and return what enclaves used since the sample before."""
        urls = {
            host.metadata.name: host.spec.gpu.metrics
            for host in self._cache.host_list()
            if host.spec.gpu is not None and host.spec.gpu.metrics is not None
        }
        reports = await self._exporters.read(urls.values()) if urls else {}
        now = self._clock().timestamp()
        by_host = {host: reports[url] for host, url in urls.items() if url in reports}
        self.hosts = {host: report.totals for host, report in by_host.items()}
        samples: dict[tuple[Place, str], GpuSample] = {}
        intervals: list[GpuInterval] = []
        for target in targets:
            key = sample_key(target)
            report = by_host.get(target.enclave.host)
            totals = report.totals_of(key[0]) if report is not None else None
            if totals is None:
                continue
            samples[key] = GpuSample(now, totals)
            interval = gpu_interval_between(
                self._samples.get(key),
                samples[key],
                container=target.container,
                longest=self._longest,
            )
            intervals += [interval] if interval is not None else []
        self._samples = samples
        return intervals


class HostGpuMetrics(Collector):
    """The GPUs of Hosts for Prometheus: those of the last look of this facade, if it collects."""

    def __init__(self, collector: GpuCollector) -> None:
        self._collector = collector

    @override
    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        gpus = gauge("cloister_host_gpus", "GPUs that the exporters of a Host report.")
        busy = gauge("cloister_host_gpu_utilization_ratio", "Share of a Host's GPUs in use.")
        used = gauge("cloister_host_gpu_memory_used_bytes", "Memory of a Host's GPUs in use.")
        total = gauge("cloister_host_gpu_memory_bytes", "Memory of a Host's GPUs.")
        for host, totals in self._collector.hosts.items():
            gpus.add_metric((host,), totals.gpus)
            if totals.busy_of:
                busy.add_metric((host,), totals.busy / totals.busy_of)
            if totals.memory_given:
                used.add_metric((host,), totals.memory * KIB)
                total.add_metric((host,), totals.memory_given * KIB)
        yield from (gpus, busy, used, total)


def gauge(name: str, meaning: str) -> GaugeMetricFamily:
    """Build a gauge by Host."""
    return GaugeMetricFamily(name, meaning, labels=("host",))
