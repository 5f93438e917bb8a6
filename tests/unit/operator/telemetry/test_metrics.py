"""The metrics: what is registered is what the manual lists, and what is recorded is exposed."""

import re
from pathlib import Path
from typing import Any

from prometheus_client import ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.metrics import MetricWrapperBase

from cloister_operator.telemetry.metrics import OperatorMetrics
from cloister_operator.workqueue.queue import Schedule

MANUAL = Path("docs/operator.md")
ROW = re.compile(r"^\| `(\w+)` \| (counter|gauge|histogram) \|(.*?)\| .+ \|$", re.MULTILINE)


def registered(metrics: OperatorMetrics) -> dict[str, tuple[str, set[str]]]:
    """Return the type and the labels of each registered metric by its exposed name."""
    found = {}
    for collector in metrics.registry._collector_to_names:
        if isinstance(collector, ProcessCollector):
            continue
        (family,) = collector.describe() if hasattr(collector, "describe") else collector.collect()
        assert isinstance(family, Metric)
        labelled: Any = collector if isinstance(collector, MetricWrapperBase) else family
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found[name] = (family.type, set(labelled._labelnames))
    return found


def test_the_manual_lists_every_metric_with_its_type_and_labels() -> None:
    documented = {
        name: (type_, set(re.findall(r"(?:^ |, )`(\w+)`", re.sub(r"\(.*?\)", "", labels))))
        for name, type_, labels in ROW.findall(MANUAL.read_text(encoding="utf-8"))
    }
    assert documented == registered(OperatorMetrics())


def test_each_process_has_its_own_registry() -> None:
    first, second = OperatorMetrics(), OperatorMetrics()
    first.written("create", "Pod")
    sample = "cloister_operator_writes_total", {"verb": "create", "kind": "Pod"}
    assert first.registry.get_sample_value(*sample) == 1
    assert second.registry.get_sample_value(*sample) is None


def test_errors_of_reconciles_are_counted_and_conflicts_are_not() -> None:
    metrics = OperatorMetrics()
    for result in ("changed", "conflict", "error", "invalid"):
        metrics.reconciled("Container", result, 0.02)
    value = metrics.registry.get_sample_value
    assert value("reconcile_errors_total", {"kind": "Container"}) == 2
    assert value("reconcile_total", {"kind": "Container", "result": "conflict"}) == 1
    assert value("reconcile_duration_seconds_count", {"kind": "Container"}) == 4


def test_requests_without_a_response_have_a_code_of_their_own() -> None:
    metrics = OperatorMetrics()
    metrics.requested("GET", 200)
    metrics.requested("GET", 0)
    text = metrics.text()
    assert 'kubernetes_requests_total{code="200",method="GET"} 1.0\n' in text
    assert 'kubernetes_requests_total{code="<error>",method="GET"} 1.0\n' in text


def test_the_work_queue_reports_its_depth_and_its_times() -> None:
    metrics = OperatorMetrics()
    schedule = Schedule[str](observer=metrics.queue)
    metrics.observe_queue(
        {"normal": lambda: schedule.normal, "low": lambda: schedule.low},
        delayed=lambda: schedule.delayed,
        longest=lambda: schedule.longest_work(14),
    )
    value = metrics.registry.get_sample_value
    schedule.add("a", 1)
    schedule.add("a", 2)
    schedule.add("b", 2, low_priority=True)
    schedule.add_at("c", 20)
    assert value("workqueue_depth", {"priority": "normal"}) == 1
    assert value("workqueue_depth", {"priority": "low"}) == 1
    assert value("workqueue_delayed") == 1
    assert value("workqueue_adds_total") == 2
    assert schedule.oldest_due(4) == 3
    assert schedule.take(4) == "a"
    assert value("workqueue_queue_duration_seconds_sum") == 3
    assert value("workqueue_longest_running_processor_seconds") == 10
    schedule.failed("a", 6)
    assert value("workqueue_work_duration_seconds_sum") == 2
    assert value("workqueue_retries_total") == 1
    assert value("workqueue_longest_running_processor_seconds") == 0
    assert schedule.take(30) is not None
    assert value("workqueue_adds_total") == 4


def test_the_cache_the_clock_and_the_election_are_read_at_a_scrape() -> None:
    metrics, leads = OperatorMetrics(), [False]
    metrics.observe_cache(("Pod",), len)
    metrics.observe_clock(lambda: -1.5)
    metrics.observe_election("operator", lambda: leads[0])
    value = metrics.registry.get_sample_value
    assert value("cloister_operator_objects", {"kind": "Pod"}) == 3
    assert value("cloister_operator_clock_offset_seconds") == -1.5
    assert value("leader_election_master_status", {"name": "operator"}) == 0
    leads[0] = True
    assert value("leader_election_master_status", {"name": "operator"}) == 1
