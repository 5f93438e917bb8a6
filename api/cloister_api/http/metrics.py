"""Metrics for Prometheus: requests, the cluster cache, state that is read at each scrape."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from cloister_api.auth.admin_keys import AdminKeyCache
from cloister_api.auth.api_keys import ApiKeyCache
from cloister_api.cache import ClusterCache
from cloister_api.certificates.sweep import CertificateExpiry
from cloister_api.ledger.last_backup import LastBackup
from cloister_api.metering.loop import Metering
from cloister_clients.telemetry import register_process_metrics

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Bounds of durations in seconds: from a response out of memory to a slow registry."""
UNMATCHED = "-"
"""Label of paths that no route has: their number is not ours to bound."""


class HttpMetrics:
    """The metrics of one facade."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        """Registry of a scrape."""
        register_process_metrics(self.registry, "api")
        self._ready = Gauge(
            "cloister_api_ready", "1 when requests may be sent here.", registry=self.registry
        )
        self.running = Gauge(
            "cloister_api_requests_in_progress",
            "Requests in progress.",
            registry=self.registry,
        )
        self._requests = Counter(
            "cloister_api_requests",
            "Completed requests.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "cloister_api_request_seconds",
            "Time until a response was complete.",
            ("method", "route"),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._limited = Counter(
            "cloister_api_requests_limited",
            "Requests refused because an admin key was used too often.",
            registry=self.registry,
        )
        self._usage_events = Counter(
            "cloister_api_usage_events",
            "Events of usage reports: counted, counted before (duplicate), and not (rejected).",
            ("reporter", "outcome"),
            registry=self.registry,
        )
        self._dropped = Counter(
            "cloister_api_connections_dropped",
            "Connections that were ended before or between requests: slow, displaced or full.",
            ("reason",),
            registry=self.registry,
        )

    def completed(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a completed request.

        Parameters
        ----------
        route
            Template of its path; empty if no route has it.
        """
        where = route or UNMATCHED
        self._requests.labels(method, where, str(status)).inc()
        self._seconds.labels(method, where).observe(seconds)

    def limited(self) -> None:
        """Count a request that was refused because of a rate."""
        self._limited.inc()

    def usage_reported(
        self, reporter: str, *, accepted: int, duplicate: int, rejected: int
    ) -> None:
        """Count the events of a report.

        Parameters
        ----------
        accepted, duplicate, rejected
            How many events are counted now, were counted before, and are not counted.
        """
        outcomes = {"accepted": accepted, "duplicate": duplicate, "rejected": rejected}
        for outcome, events in outcomes.items():
            self._usage_events.labels(reporter, outcome).inc(events)

    def dropped(self, reason: str) -> None:
        """Count a connection that was ended.

        Parameters
        ----------
        reason
            ``slow`` = it waited too long, ``displaced`` = it gave way to a new one, ``full`` = it
            was new and none could give way.
        """
        self._dropped.labels(reason).inc()

    def follow_readiness(self, ready: Callable[[], bool]) -> None:
        """Report at each scrape whether requests may be sent here."""
        self._ready.set_function(ready)

    def follow(self, cache: Callable[[], ClusterCache | None]) -> None:
        """Report the cluster cache at each scrape.

        Parameters
        ----------
        cache
            Returns the cache; None if it does not exist yet.
        """
        self.registry.register(CacheCollector(cache))


class CacheCollector(Collector):
    """Metrics of the cached custom resources, collected at each scrape."""

    def __init__(self, cache: Callable[[], ClusterCache | None]) -> None:
        self._cache = cache

    @override
    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        ready = GaugeMetricFamily(
            "cloister_api_copy_ready", "1 when a copy has been filled once.", labels=("kind",)
        )
        objects = GaugeMetricFamily(
            "cloister_api_copy_objects", "Objects in a copy.", labels=("kind",)
        )
        cache = self._cache()
        for reflector in cache.all if cache is not None else ():
            ready.add_metric((reflector.kind,), float(reflector.ready))
            objects.add_metric((reflector.kind,), float(reflector.size))
        yield ready
        yield objects


@dataclass(frozen=True, slots=True)
class StateMetrics(Collector):
    """Collects the state of one facade."""

    admin_keys: AdminKeyCache
    """Admin keys in memory."""
    api_keys: ApiKeyCache
    """Regular keys in memory."""
    metering: Metering | None
    """Metering of run time; None if it is off."""
    certificates: CertificateExpiry | None
    """Certificates of enclaves; None if nobody signs them."""
    last_backup: LastBackup
    """When the installation was backed up."""

    @override
    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        now = time.monotonic()
        read_at = min(self.admin_keys.read_at, self.api_keys.read_at)
        yield gauge(
            "cloister_api_ledger_lag_seconds",
            "Time since keys and totals in memory were last compared with the ledger.",
            now - read_at,
        )
        yield gauge(
            "cloister_api_replicas", "Replicas that the ledger knows.", self.api_keys.facades
        )
        yield gauge(
            "cloister_api_backup_timestamp_seconds",
            "When the installation was last backed up with its ledger.",
            unix(self.last_backup.at),
        )
        if self.metering is not None:
            yield gauge(
                "cloister_api_metering_lag_seconds",
                "Time since the run time that was due was in the ledger.",
                now - self.metering.completed_at,
            )
        if self.certificates is not None:
            yield from of_certificates(self.certificates)


def of_certificates(found: CertificateExpiry) -> Iterator[Metric]:
    """Yield the metrics of certificates; what does not exist has no sample."""
    yield gauge(
        "cloister_api_certificate_orders_failing",
        "Orders of certificates that wait after a failed attempt.",
        found.failing,
    )
    yield gauge(
        "cloister_api_certificate_expiry_timestamp_seconds",
        "When the first certificate of a present enclave expires.",
        unix(found.earliest),
    )
    yield gauge(
        "cloister_api_authority_expiry_timestamp_seconds",
        "When the certificate of the own authority expires.",
        unix(found.authority),
    )


def gauge(name: str, meaning: str, value: float | None) -> GaugeMetricFamily:
    """Build a gauge; None if it has no sample now."""
    family = GaugeMetricFamily(name, meaning)
    if value is not None:
        family.add_metric((), value)
    return family


def unix(at: datetime | None) -> float | None:
    """Return a time in Unix seconds."""
    return at.timestamp() if at is not None else None
