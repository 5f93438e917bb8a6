"""Samples the GPUs of active enclaves and of Hosts at the exporters that Hosts name."""

import asyncio
import logging
import ssl
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import httpx
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from cloister_api.cache import CachedEnclave, ClusterCache
from cloister_api.utilization.buckets import GpuInterval, GpuSample, SeriesKey, gpu_interval_between
from cloister_api.utilization.samples import (
    ExpositionError,
    GpuReport,
    GpuTotals,
    Place,
    merged,
    read_gpus,
)
from cloister_clients.address_guard import Guard, HostUnknown, Resolver, host_port, system_resolver
from cloister_clients.clock import Clock
from cloister_clients.outbound import ResponseTooLarge, fetch

logger = logging.getLogger(__name__)

EXPORTERS = 256
"""Most addresses of one name; more nodes need a name for each pool."""
AT_ONCE = 32
"""Exporters that are queried at the same time."""
SECONDS = 5.0
"""Longest time for one exporter."""
BYTES = 2 * 1024 * 1024
"""Longest response of one exporter; eight GPUs with all metrics are a tenth of it."""


class GpuExporters:
    """Reads exporters. Only an administrator names them (Host.spec.gpu.metrics)."""

    def __init__(self, resolver: Resolver = system_resolver) -> None:
        self._resolver = resolver
        # No proxy and no netrc of the environment, and no redirect: it could lead anywhere. Nothing
        # is trusted by TLS, as URLs are of plain HTTP, and reading the authorities takes 60 ms.
        self._client = httpx.AsyncClient(
            timeout=SECONDS,
            follow_redirects=False,
            trust_env=False,
            verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            headers={"User-Agent": "cloister-api", "Accept-Encoding": "identity"},
            limits=httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE),
        )
        self._silent: set[str] = set()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def read(self, urls: Iterable[str]) -> Mapping[str, GpuReport]:
        """Query what is behind each URL.

        Returns
        -------
        Mapping
            By URL. A URL whose name has no address is left out, and so is what an exporter that
            does not respond would have reported; both are logged once until it responds again.
        """
        wanted = sorted(set(urls))
        limit = asyncio.Semaphore(AT_ONCE)
        places = await asyncio.gather(*(self._addresses(url) for url in wanted))
        pairs = [(url, place) for url, found in zip(wanted, places, strict=True) for place in found]
        reports = await asyncio.gather(*(self._read(url, place, limit) for url, place in pairs))
        known: dict[str, list[GpuReport]] = {}
        for (url, _), report in zip(pairs, reports, strict=True):
            if report is not None:
                known.setdefault(url, []).append(report)
        self._silent &= {*wanted, *(place for _, place in pairs)}
        return {url: merged(found) for url, found in known.items()}

    async def _addresses(self, url: str) -> list[str]:
        """Return the URL with each address that its name has."""
        parsed = httpx.URL(url)
        host, port = host_port(parsed)
        guard = Guard(allow_private=frozenset({host}), resolver=self._resolver)
        try:
            found = await guard.addresses(host, port)
        except HostUnknown as error:
            self._log(url, str(error))
            return []
        if len(found) > EXPORTERS:
            self._log(url, f"the name has {len(found)} addresses; the first {EXPORTERS} are read")
        else:
            self._silent.discard(url)
        return [str(parsed.copy_with(host=address)) for address in found[:EXPORTERS]]

    async def _read(self, url: str, place: str, limit: asyncio.Semaphore) -> GpuReport | None:
        """Query one exporter; None if it did not respond as one."""
        try:
            async with limit, asyncio.timeout(SECONDS):
                report = read_gpus(await self._text(url, place))
        except TimeoutError:
            self._log(place, f"no response within {SECONDS:.0f} s")
        except (httpx.HTTPError, ResponseTooLarge, ExpositionError) as error:
            self._log(place, str(error) or type(error).__name__)
        else:
            self._silent.discard(place)
            return report
        return None

    async def _text(self, url: str, place: str) -> str:
        """Return what one exporter responds.

        Raises
        ------
        ExpositionError
            When it responds with another status than 200.
        ResponseTooLarge, httpx.HTTPError
            When nothing responds, or with too much.
        """
        headers = {"Host": httpx.URL(url).netloc.decode(), "Accept": "text/plain"}
        response = await fetch(self._client, "GET", place, headers=headers, limit=BYTES)
        if response.status != httpx.codes.OK:
            raise ExpositionError(f"it responds with status {response.status}")
        return response.body.decode("utf-8", "replace")

    def _log(self, place: str, problem: str) -> None:
        """Log a problem once."""
        if place not in self._silent:
            self._silent.add(place)
            logger.warning(
                "no or not all metrics of GPUs from %s: %s; see spec.gpu.metrics of the Hosts",
                place,
                problem,
            )


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
