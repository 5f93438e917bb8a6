"""Figures for Prometheus: requests, their times, what is being answered, what the copies hold."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from cloister_api.cache import ClusterCache

__all__ = ["Figures"]

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Bounds of the times in seconds: from an answer out of memory to a registry that is slow."""
UNMATCHED = "-"
"""Stands for paths that no route has: their number is not ours to bound."""


class Figures:
    """The figures of one facade."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        """What a scrape reads."""
        self.running = Gauge(
            "cloister_api_requests_in_progress",
            "Requests that are being answered.",
            registry=self.registry,
        )
        self._requests = Counter(
            "cloister_api_requests",
            "Requests that were answered.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "cloister_api_request_seconds",
            "Time until an answer was whole.",
            ("method", "route"),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._limited = Counter(
            "cloister_api_requests_limited",
            "Requests refused because an admin key was used too often.",
            registry=self.registry,
        )

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answer.

        Parameters
        ----------
        method
            Method of the request.
        route
            Template of its path; empty = no route has it.
        status
            HTTP status.
        seconds
            How long it took.
        """
        where = route or UNMATCHED
        self._requests.labels(method, where, str(status)).inc()
        self._seconds.labels(method, where).observe(seconds)

    def limited(self) -> None:
        """Count a request that was refused because of a rate."""
        self._limited.inc()

    def follow(self, cache: Callable[[], ClusterCache | None]) -> None:
        """Tell of copies at each scrape.

        Parameters
        ----------
        cache
            Answers the copies; None = they are not there yet.
        """
        self.registry.register(Copies(cache))


class Copies(Collector):
    """What the copies of custom resources hold, looked at when it is asked for."""

    def __init__(self, cache: Callable[[], ClusterCache | None]) -> None:
        self._cache = cache

    @override
    def collect(self) -> Iterator[Metric]:
        """Answer the figures."""
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
