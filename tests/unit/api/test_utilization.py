"""Utilization: the kubelet's text, two samples compared, sums in buckets, points."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister_api.usage.windows import WINDOWS
from cloister_api.utilization.buckets import (
    LEVELS,
    PodSample,
    SeriesKey,
    UsageInterval,
    add_interval,
    interval_between,
    is_newer,
)
from cloister_api.utilization.exposition import ResourceReading, read_resources
from cloister_api.utilization.store import NOTHING, point

TEXT = """\
# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="web",namespace="org-a",pod="web-1"} 12.5 1700000001000
container_cpu_usage_seconds_total{container="agent",namespace="org-a",pod="web-1"} 1 1700000001500
container_cpu_usage_seconds_total{container="half",namespace="org-a",pod="web-1"} 1 1700000001500
container_cpu_usage_seconds_total{container="web",namespace="org-b",pod="web-1"} NaN 1700000001000
container_cpu_usage_seconds_total{container="web",namespace="org-b",pod="web-1"} 3
container_memory_working_set_bytes{container="web",namespace="org-a",pod="web-1"} 1.048576e+06 17000
container_memory_working_set_bytes{container="agent",namespace="org-a",pod="web-1"} 5 1700000002000
container_memory_working_set_bytes{container="web",namespace="org-b",pod="web-1"} 5 1700000002000
container_start_time_seconds{container="web",namespace="org-a",pod="web-1"} 1.7e9
node_cpu_usage_seconds_total 100 1700000001000
pod_cpu_usage_seconds_total{namespace="org-a",pod="web-1"} 13.5 1700000001000
scrape_error 0
"""


def test_only_the_two_metrics_of_a_container_are_read() -> None:
    assert read_resources(TEXT) == {
        ("org-a", "web-1"): {
            "web": ResourceReading(12.5, 1_048_576, 1_700_000_001.0),
            "agent": ResourceReading(1, 5, 1_700_000_001.5),
        },
        ("org-b", "web-1"): {},
    }
    assert read_resources("") == {}


def look(at: float, **readings: tuple[float, float]) -> PodSample:
    """Build a sample of containers: processor seconds and bytes."""
    return PodSample(
        at, {name: ResourceReading(cpu, memory, at) for name, (cpu, memory) in readings.items()}
    )


def between(before: PodSample | None, now: PodSample) -> UsageInterval | None:
    return interval_between(before, now, container=("acme", "c"), cpus=2, memory_mb=4, longest=60)


def test_usage_between_two_samples_is_summed_over_containers() -> None:
    found = between(look(100, a=(10, 1024), b=(5, 1024)), look(110, a=(15, 3072), b=(6, 1024)))
    assert found is not None
    assert (found.begin, found.end, found.cpu, found.memory) == (100, 110, 0.6, 3)
    assert (found.cpus, found.memory_given) == (2, 4096)


def test_a_container_that_started_again_used_all_that_its_counter_shows() -> None:
    again = between(look(100, a=(10, 0)), look(110, a=(4, 0)))
    new = between(look(100, a=(10, 0)), look(110, a=(10, 0), b=(4, 0)))
    assert again is not None
    assert new is not None
    assert again.cpu == new.cpu == 0.4


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (None, look(110, a=(1, 1))),
        (look(100), look(110, a=(1, 1))),
        (look(100, a=(1, 1)), look(110)),
        (look(100, a=(1, 1)), look(161, a=(1, 1))),
        (look(110, a=(1, 1)), look(110, a=(1, 1))),
    ],
    ids=["first", "nothing before", "nothing now", "too long ago", "no time between"],
)
def test_nothing_is_guessed(before: PodSample | None, now: PodSample) -> None:
    assert between(before, now) is None


def test_a_counter_that_was_not_read_again_is_compared_later() -> None:
    first = look(100, a=(1, 1), b=(1, 1))
    cached = PodSample(115, {**look(115, a=(2, 1)).readings, "b": first.readings["b"]})
    assert not is_newer(first, cached)
    assert between(first, cached) is None
    assert is_newer(first, look(130, a=(2, 1)))


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
        assert shown == {"cpu_util": 50.0, "cpu_mem_util": 25.0, "cpu_mem_total": 8.0}


def test_points_are_in_percent_and_gb_and_null_where_nothing_is_known() -> None:
    hour = 3_600_000
    gib = 1024 * 1024 * hour
    shown = point(hour, hour // 2, 2 * hour, gib, 8 * gib)
    assert shown == {"cpu_util": 25.0, "cpu_mem_util": 12.5, "cpu_mem_total": 8.0}
    assert NOTHING == {"cpu_util": None, "cpu_mem_util": None, "cpu_mem_total": None}


@pytest.mark.parametrize("name", WINDOWS)
def test_buckets_are_kept_as_long_as_their_windows_show_them(name: str) -> None:
    window = WINDOWS[name]
    (level,) = [one for one in LEVELS if one.seconds == window.level]
    assert level.keep is not None
    assert level.keep >= window.seconds + window.interval
