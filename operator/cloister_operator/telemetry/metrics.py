"""The metrics of one process, in the names of client-go and controller-runtime where they have one.

Recorded in the event loop, read by the health thread (prometheus-client locks each value).
docs/operator.md lists them all; a test compares that table with what is registered here.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

from cloister_clients.telemetry import register_process_metrics

_RECONCILE_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
"""Bounds of a reconcile: from one that reads only the cache to one that waits for retries."""
_QUEUE_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0)
"""Bounds of the time in the queue: new Containers of a large rollout wait for minutes."""
FAILURES = frozenset({"error", "invalid"})
"""Results of a reconcile that failed; a conflict is repeated immediately and is part of the
work."""
_UNREACHABLE = "<error>"
"""Code of a request without a response, as in client-go."""


class LaneState(Protocol):
    """What metrics read of a lane of lookups."""

    @property
    def waiting(self) -> int:
        """How many lookups wait."""

    @property
    def running(self) -> int:
        """How many lookups run."""

    @property
    def open_circuits(self) -> int:
        """How many circuits are open."""


@dataclass(frozen=True, slots=True)
class CountedState:
    """What Containers are counted by (`cache.container_counts`)."""

    namespace: str
    """Namespace of the organization."""
    status: str
    """Status word (spec 5.1)."""
    reason: str
    """Reason of the condition Stalled where that is True, else of Ready; empty if there is none."""
    stalled: bool
    """Whether an action is required."""


class _Containers(Collector):
    """Containers by state, collected at each scrape: a state without Containers has no series."""

    def __init__(self) -> None:
        self.counts: Callable[[], Mapping[CountedState, int]] = dict

    @override
    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metric."""
        labels = ("organization_namespace", "status", "reason", "stalled")
        family = GaugeMetricFamily("cloister_containers", "Containers by state.", labels=labels)
        for state, count in self.counts().items():
            stalled = "true" if state.stalled else "false"
            family.add_metric((state.namespace, state.status, state.reason, stalled), count)
        yield family


class QueueMetrics:
    """The metrics of the work queue that are recorded one by one (`workqueue.queue`)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._adds = Counter("workqueue_adds", "Keys that became due.", registry=registry)
        self._retries = Counter(
            "workqueue_retries", "Keys that are repeated after a failure.", registry=registry
        )
        self._waited = Histogram(
            "workqueue_queue_duration_seconds",
            "Time for which a key was due until a worker took it.",
            buckets=_QUEUE_SECONDS,
            registry=registry,
        )
        self._worked = Histogram(
            "workqueue_work_duration_seconds",
            "Time for which a worker had a key.",
            buckets=_RECONCILE_SECONDS,
            registry=registry,
        )

    def added(self) -> None:
        """Count a key that became due."""
        self._adds.inc()

    def retried(self) -> None:
        """Count a key that failed and is repeated after a backoff."""
        self._retries.inc()

    def taken(self, waited: float) -> None:
        """Record the seconds for which a key was due until a worker took it."""
        self._waited.observe(waited)

    def finished(self, worked: float) -> None:
        """Record the seconds for which a worker had a key."""
        self._worked.observe(worked)


class OperatorMetrics:
    """All metrics of one process, with a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry(auto_describe=True)
        """What a scrape reads."""
        self.queue = QueueMetrics(registry)
        """For the work queue."""
        register_process_metrics(registry, "operator")
        self._containers = _Containers()
        registry.register(self._containers)
        self._reconciles = Counter(
            "reconcile", "Reconciles by kind and result.", ("kind", "result"), registry=registry
        )
        self._errors = Counter(
            "reconcile_errors", "Reconciles that failed.", ("kind",), registry=registry
        )
        self._seconds = Histogram(
            "reconcile_duration_seconds",
            "Time of a reconcile.",
            ("kind",),
            buckets=_RECONCILE_SECONDS,
            registry=registry,
        )
        self._requests = Counter(
            "kubernetes_requests",
            "Requests to the API server, watches excepted.",
            ("method", "code"),
            registry=registry,
        )
        self._writes = Counter(
            "cloister_operator_writes",
            "Writes to the API server.",
            ("verb", "kind"),
            registry=registry,
        )
        self._lookups = Counter(
            "cloister_operator_lookups",
            "Lookups at sources, registries and name servers.",
            ("kind", "result"),
            registry=registry,
        )
        self._watch_events = Counter(
            "cloister_operator_watch_events", "Events of watches.", ("kind",), registry=registry
        )
        self._missed = Counter(
            "cloister_operator_missed_deletions",
            "Deletions that no watch reported.",
            ("kind",),
            registry=registry,
        )
        self._register_gauges()
        self._register_lookups()

    def _register_gauges(self) -> None:
        """Register what is read only at a scrape; 0 until `observe_…` names where."""
        registry = self.registry
        self._depth = Gauge(
            "workqueue_depth", "Keys that are due.", ("priority",), registry=registry
        )
        self._delayed = Gauge(
            "workqueue_delayed", "Keys that wait for their time.", registry=registry
        )
        self._longest = Gauge(
            "workqueue_longest_running_processor_seconds",
            "Time for which a worker has had its key longest.",
            registry=registry,
        )
        self._oldest = Gauge(
            "cloister_operator_oldest_due_key_seconds",
            "Time for which a key has been due longest, measured every two seconds.",
            registry=registry,
        )
        self._watch_behind = Gauge(
            "cloister_operator_watch_behind_objects",
            "Objects whose change a watch has not reported over two comparisons.",
            ("kind",),
            registry=registry,
        )
        self._policies = Gauge(
            "cloister_operator_policies_lapsed",
            "Admission policies that are not in force.",
            registry=registry,
        )
        self._leads = Gauge(
            "leader_election_master_status",
            "1 when this process holds the Lease.",
            ("name",),
            registry=registry,
        )
        self._objects = Gauge(
            "cloister_operator_objects",
            "Objects in the informer cache.",
            ("kind",),
            registry=registry,
        )
        self._clock_offset = Gauge(
            "cloister_operator_clock_offset_seconds",
            "Seconds that the API server is ahead.",
            registry=registry,
        )

    def _register_lookups(self) -> None:
        """Register what is read of lookups only at a scrape."""
        registry = self.registry
        self._lookups_waiting = Gauge(
            "cloister_operator_lookups_waiting",
            "Lookups that wait for their turn.",
            ("lane",),
            registry=registry,
        )
        self._lookups_running = Gauge(
            "cloister_operator_lookups_running", "Lookups that run.", ("lane",), registry=registry
        )
        self._circuits = Gauge(
            "cloister_operator_circuits_open",
            "Remote hosts that are not queried for a while.",
            ("lane",),
            registry=registry,
        )
        self._cached_bytes = Gauge(
            "cloister_operator_lookup_cache_bytes",
            "Memory of cached results of lookups.",
            registry=registry,
        )

    def reconciled(self, kind: str, result: str, seconds: float) -> None:
        """Record a reconcile.

        Parameters
        ----------
        result
            How it ended: changed, unchanged, conflict, fenced, invalid or error.
        """
        self._reconciles.labels(kind, result).inc()
        self._seconds.labels(kind).observe(seconds)
        if result in FAILURES:
            self._errors.labels(kind).inc()

    def requested(self, method: str, status: int) -> None:
        """Count a request to the API server; status 0 if there was no response."""
        self._requests.labels(method, str(status) if status else _UNREACHABLE).inc()

    def written(self, verb: str, kind: str) -> None:
        """Count a write to the API server before it is sent."""
        self._writes.labels(verb, kind).inc()

    def looked_up(self, kind: str, result: str) -> None:
        """Count a lookup; the result is ``known`` or the reason of its failure."""
        self._lookups.labels(kind, result).inc()

    def watch_event(self, kind: str) -> None:
        """Count an event of a watch."""
        self._watch_events.labels(kind).inc()

    def missed_deletions(self, kind: str, count: int) -> None:
        """Count objects that were gone from the server without an event."""
        self._missed.labels(kind).inc(count)

    def oldest_due(self, seconds: float) -> None:
        """Record the time for which a key has been due longest."""
        self._oldest.set(seconds)

    def watch_behind(self, kind: str, objects: int) -> None:
        """Record how many objects a watch has been behind over two comparisons."""
        self._watch_behind.labels(kind).set(objects)

    def policies_lapsed(self, count: int) -> None:
        """Record how many admission policies are not in force."""
        self._policies.set(count)

    def observe_containers(self, counts: Callable[[], Mapping[CountedState, int]]) -> None:
        """Read how many Containers are in which state at each scrape."""
        self._containers.counts = counts

    def observe_queue(
        self,
        depths: Mapping[str, Callable[[], int]],
        *,
        delayed: Callable[[], int],
        longest: Callable[[], float],
    ) -> None:
        """Read the queue at each scrape.

        Parameters
        ----------
        longest
            Seconds for which a worker has had its key longest.
        """
        for priority, depth in depths.items():
            self._depth.labels(priority).set_function(depth)
        self._delayed.set_function(delayed)
        self._longest.set_function(longest)

    def observe_cache(self, kinds: Collection[str], count: Callable[[str], int]) -> None:
        """Read the informer cache at each scrape.

        Parameters
        ----------
        count
            Returns how many objects of a kind the cache has.
        """
        for kind in kinds:
            self._objects.labels(kind).set_function(partial(count, kind))

    def observe_lookups(self, lanes: Mapping[str, LaneState], *, cached: Callable[[], int]) -> None:
        """Read the lookups at each scrape.

        Parameters
        ----------
        cached
            Returns the bytes that cached results take.
        """
        for name, lane in lanes.items():
            self._lookups_waiting.labels(name).set_function(partial(getattr, lane, "waiting"))
            self._lookups_running.labels(name).set_function(partial(getattr, lane, "running"))
            self._circuits.labels(name).set_function(partial(getattr, lane, "open_circuits"))
        self._cached_bytes.set_function(cached)

    def observe_clock(self, offset: Callable[[], float]) -> None:
        """Read the difference to the API server's clock at each scrape, in seconds."""
        self._clock_offset.set_function(offset)

    def observe_election(self, lease: str, leads: Callable[[], bool]) -> None:
        """Read at each scrape whether this process holds a Lease."""
        self._leads.labels(lease).set_function(leads)

    def text(self) -> str:
        """Return all metrics (Prometheus, "Text-based format")."""
        return generate_latest(self.registry).decode()
