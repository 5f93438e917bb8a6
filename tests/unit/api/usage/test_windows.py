"""Windows of usage: their intervals (spec 10.5), their ends, and what buckets make them up."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister_api.usage.windows import LEVELS, WINDOWS, cover, duration_text, span_of

NOW = datetime(2026, 11, 22, 4, 30, 2, tzinfo=UTC)
TABLE = {
    "5m": (300, 5, "5s", 60),
    "15m": (900, 15, "15s", 60),
    "30m": (1800, 30, "30s", 60),
    "1h": (3600, 60, "1m0s", 60),
    "24h": (86400, 900, "15m0s", 96),
    "7d": (604800, 7200, "2h0m0s", 84),
    "30d": (2592000, 28800, "8h0m0s", 90),
    "60d": (5184000, 86400, "24h0m0s", 60),
    "90d": (7776000, 86400, "24h0m0s", 90),
}


@pytest.mark.spec("10.1", "10.4", "10.5", "12.11", "27.5")
@pytest.mark.parametrize("name", TABLE)
def test_each_window_has_the_interval_of_the_specification(name: str) -> None:
    window = WINDOWS[name]
    span = span_of(window, NOW)
    found = (window.seconds, window.interval, duration_text(window.interval), len(span.points))
    assert found == TABLE[name]
    assert list(WINDOWS) == list(TABLE)


@pytest.mark.spec("27.4")
@settings(max_examples=30)
@given(
    st.sampled_from(list(TABLE)),
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)),  # noqa: DTZ001 - the zone is added below
)
def test_the_last_point_holds_now_and_points_are_aligned(name: str, moment: datetime) -> None:
    now = moment.replace(tzinfo=UTC)
    span = span_of(WINDOWS[name], now)
    assert span.points[-1] <= now.timestamp() < span.points[-1] + span.interval
    assert all(begin % span.interval == 0 for begin in span.points)
    assert span.end - span.begin == WINDOWS[name].seconds


@settings(max_examples=30)
@given(
    st.sampled_from(list(TABLE)),
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)),  # noqa: DTZ001 - the zone is added below
)
def test_buckets_make_a_window_up_without_gap_and_while_they_are_kept(
    name: str, moment: datetime
) -> None:
    now = moment.replace(tzinfo=UTC)
    span = span_of(WINDOWS[name], now)
    runs = cover(span.begin, span.end)
    kept = {level.seconds: level.keep for level in LEVELS}
    edges: dict[int, int] = {}
    for run in runs:
        assert (run.begin % run.size, run.end % run.size) == (0, 0)
        # An event that is as late as it may be is still counted in these buckets.
        keep = kept[run.size]
        assert keep is None or run.begin > (now - timedelta(seconds=keep)).timestamp()
        for edge, sign in ((run.begin, run.sign), (run.end, -run.sign)):
            edges[edge] = edges.get(edge, 0) + sign
    # What is added and taken off is once the window, and nothing beside it.
    assert {edge: sign for edge, sign in edges.items() if sign} == {span.begin: 1, span.end: -1}
    assert sum((run.end - max(run.begin, span.begin)) // run.size for run in runs) < 600
    level = WINDOWS[name].level
    keep = kept[level]
    assert keep is None or span.begin >= (now - timedelta(seconds=keep)).timestamp()


def test_the_inside_of_long_windows_is_read_in_long_buckets() -> None:
    """What is in the future holds next to nothing; it is left out here."""
    found = {
        name: sum(
            (min(run.end, int(NOW.timestamp())) - run.begin) // run.size
            for run in cover(*edges_of(name))
            if run.begin < NOW.timestamp()
        )
        for name in TABLE
    }
    assert all(count < 30 for name, count in found.items() if TABLE[name][0] >= 86400), found
    assert all(count < 200 for count in found.values()), found


def edges_of(name: str) -> tuple[int, int]:
    span = span_of(WINDOWS[name], NOW)
    return span.begin, span.end
