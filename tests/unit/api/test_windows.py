"""Windows of usage: the table of the specification, their ends, and what buckets make them up."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister_api.usage.levels import LEVELS
from cloister_api.usage.queries import SIZES
from cloister_api.usage.windows import WINDOWS, cover, duration_text, span_of

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


@pytest.mark.parametrize("name", TABLE)
def test_each_window_has_the_interval_of_the_specification(name: str) -> None:
    window = WINDOWS[name]
    span = span_of(window, NOW)
    found = (window.seconds, window.interval, duration_text(window.interval), len(span.points))
    assert found == TABLE[name]
    assert list(WINDOWS) == list(TABLE)


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
    runs = list(cover(span.begin, span.end, SIZES))
    edges = [span.begin, *(end for _, _, end in runs)]
    assert edges == [*(begin for _, begin, _ in runs), span.end]
    kept = {level.seconds: level.keep for level in LEVELS}
    for size, begin, end in runs:
        assert (begin % size, end % size) == (0, 0)
        keep = kept[size]
        assert keep is None or begin >= (now - timedelta(seconds=keep)).timestamp()
        # An event that is as late as it may be is still counted in these buckets.
    level = WINDOWS[name].level
    keep = kept[level]
    assert keep is None or span.begin >= (now - timedelta(seconds=keep)).timestamp()
