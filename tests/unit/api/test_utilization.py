"""Utilization: the list of the Metrics API, windows, sums in buckets, points."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister_api.usage.windows import WINDOWS
from cloister_api.utilization.buckets import (
    LEVELS,
    SeriesKey,
    UsageInterval,
    add_interval,
    interval_of,
)
from cloister_api.utilization.samples import ContainerUsage, PodUsage, quantity, read_pod_metrics
from cloister_api.utilization.store import NOTHING, point

RECORDED = Path("tests/data/metrics/pods.json").read_bytes()
"""What metrics-server 0.9.0 returned of two idle Pods."""
CONTAINERS = {
    "web": ContainerUsage(0.5, 1 << 20),
    "sidecar": ContainerUsage(1, 4 << 20),
    "worker": ContainerUsage(0.25, 2 << 20),
}


def listed(**changes: Any) -> bytes:
    """Return a list with one Pod that is changed and one that is not."""
    pod = {
        "metadata": {"name": "web-1", "namespace": "org-a"},
        "timestamp": "2026-11-22T04:30:02Z",
        "window": "15.5s",
        "containers": [{"name": "web", "usage": {"cpu": "250m", "memory": "64Mi"}}],
    }
    other = {**pod, "metadata": {"name": "web-2", "namespace": "org-b"}}
    return json.dumps({"kind": "PodMetricsList", "items": [{**pod, **changes}, other]}).encode()


def test_a_list_says_what_the_containers_of_each_pod_used() -> None:
    usage = PodUsage(1_795_321_802, 15.5, {"web": ContainerUsage(0.25, 64 << 20)})
    assert read_pod_metrics(listed()) == {("org-a", "web-1"): usage, ("org-b", "web-2"): usage}
    assert read_pod_metrics(b'{"items": null}') == {}


def test_what_metrics_server_returns_is_read() -> None:
    end = datetime(2026, 11, 25, 12, 39, 31, tzinfo=UTC).timestamp()
    assert read_pod_metrics(RECORDED) == {
        ("org-recorded", "web-1"): PodUsage(end, 9.996, {"web-1": ContainerUsage(0, 940 << 10)}),
        ("org-recorded", "web-2"): PodUsage(end, 9.994, {"web-2": ContainerUsage(0, 1000 << 10)}),
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"timestamp": "yesterday"},
        {"timestamp": "2026-11-22T04:30:02"},
        {"window": "soon"},
        {"window": None},
        {"metadata": {"name": "web-1"}},
        {"containers": "none"},
    ],
    ids=str,
)
def test_a_pod_that_cannot_be_read_costs_no_other_its_usage(changes: dict[str, Any]) -> None:
    assert list(read_pod_metrics(listed(**changes))) == [("org-b", "web-2")]


@pytest.mark.parametrize("usage", [{}, {"cpu": "1"}, {"cpu": "-1", "memory": "1Mi"}], ids=str)
def test_a_container_without_an_amount_is_left_out(usage: dict[str, str]) -> None:
    content = listed(containers=[{"name": "web", "usage": usage}])
    assert read_pod_metrics(content)["org-a", "web-1"].containers == {}


@pytest.mark.parametrize("content", [b"", b"[]", b'{"items": 1}', b"503 unavailable"])
def test_what_is_no_list_is_an_error(content: bytes) -> None:
    with pytest.raises(ValueError, match="not a list of PodMetrics"):
        read_pod_metrics(content)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("1", 1),
        ("250m", 0.25),
        ("12345678n", 0.012345678),
        ("15u", 0.000015),
        ("1.5", 1.5),
        (".5k", 500),
        ("64Mi", 64 << 20),
        ("130724Ki", 130724 << 10),
        ("3Gi", 3 << 30),
        ("1e3", 1000),
        ("1E3", 1000),
        ("2E", 2e18),
        ("12e-1", 1.2),
        *((text, None) for text in ("", "m", "-1", "1mi", "1 k", "NaN", "1e999", "1ki")),
    ],
)
def test_quantities_are_read_as_kubernetes_writes_them(text: str, value: float | None) -> None:
    assert quantity(text) == value


def counted(since: float, *, now: float = 1000, **usage: Any) -> UsageInterval | None:
    """Return what counts of a window of 15 s that ends at 1000."""
    found = PodUsage(**{"end": 1000, "window": 15, "containers": CONTAINERS, **usage})
    return interval_of(
        found, ("web", "worker"), since=since, now=now, container=("a", "c"), cpus=2, memory_mb=4
    )


def test_usage_is_summed_over_the_containers_of_the_file() -> None:
    assert counted(0) == UsageInterval(("a", "c"), 985, 1000, 0.75, 2, 3072, 4096)


def test_no_second_is_counted_twice() -> None:
    """Windows may overlap, and the same one is returned until there is the next."""
    overlapping = counted(990)
    assert overlapping is not None
    assert (overlapping.begin, overlapping.end, overlapping.cpu) == (990, 1000, 0.75)
    assert counted(1000) is counted(1001) is None


def test_what_lies_between_two_windows_is_a_gap() -> None:
    later = counted(900)
    assert later is not None
    assert later.begin == 985


@pytest.mark.parametrize(
    ("now", "usage"),
    [
        (1000, {"containers": {"sidecar": CONTAINERS["sidecar"]}}),
        (1000, {"window": 0}),
        (1000, {"window": 601}),
        (939, {}),
        (1601, {}),
    ],
    ids=["nothing of the file", "no window", "too long", "clock is ahead", "too old"],
)
def test_nothing_is_guessed(now: float, usage: dict[str, Any]) -> None:
    assert counted(0, now=now, **usage) is None


@settings(max_examples=40)
@given(
    st.lists(st.floats(0.5, 40), min_size=1, max_size=20),
    st.floats(0, 4),
    st.sampled_from([level.seconds for level in LEVELS]),
)
def test_every_size_of_bucket_has_the_whole_time(steps: list[float], cpu: float, size: int) -> None:
    begin = end = 1_700_000_003.25
    sums: dict[tuple[int, SeriesKey, int], list[int]] = {}
    for step in steps:
        add_interval(sums, UsageInterval(("acme", "c"), end, end + step, cpu, 4, 512, 1024))
        end += step
    own = [values for (level, _, _), values in sums.items() if level == size]
    assert sum(values[0] for values in own) == round(end * 1000) - round(begin * 1000)
    assert all(0 < values[0] <= size * 1000 for values in own)
    assert all(values[2] == 4 * values[0] and values[4] == 1024 * values[0] for values in own)
    assert all(bucket % level == 0 for level, _, bucket in sums)
    for values in own:
        if values[0] > 100:
            shown = point(*values)
            assert shown["cpu_util"] == pytest.approx(cpu * 25, abs=1)
            assert shown["cpu_mem_util"] == pytest.approx(50, abs=1)


@pytest.mark.parametrize("part", [0.0004, 0.0005, 0.003, 0.5, 0.9996])
def test_a_bucket_of_a_few_milliseconds_shows_what_the_whole_stretch_shows(part: float) -> None:
    """A stretch may begin and end at any fraction of a second."""
    sums: dict[tuple[int, SeriesKey, int], list[int]] = {}
    begin = 1_700_000_004 + part
    add_interval(sums, UsageInterval(("acme", "c"), begin, begin + 60, 1, 2, 2 << 20, 8 << 20))
    assert len(sums) >= 15
    for values in sums.values():
        shown = point(*values)
        assert shown == NOTHING | {"cpu_util": 50, "cpu_mem_util": 25, "cpu_mem_total": 8}


@pytest.mark.spec("21.13")
def test_points_are_in_percent_and_gb_and_null_where_nothing_is_known() -> None:
    hour = 3_600_000
    gib = 1024 * 1024 * hour
    shown = point(hour, hour // 2, 2 * hour, gib, 8 * gib)
    assert shown == NOTHING | {"cpu_util": 25.0, "cpu_mem_util": 12.5, "cpu_mem_total": 8.0}
    assert list(NOTHING) == [
        f"{kind}_{what}" for kind in ("cpu", "gpu") for what in ("util", "mem_util", "mem_total")
    ]
    assert set(NOTHING.values()) == {None}


@pytest.mark.parametrize("name", WINDOWS)
def test_buckets_are_kept_as_long_as_their_windows_show_them(name: str) -> None:
    window = WINDOWS[name]
    (level,) = [one for one in LEVELS if one.seconds == window.level]
    assert level.keep is not None
    assert level.keep >= window.seconds + window.interval
