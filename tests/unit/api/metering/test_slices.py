"""Slices of run time: their sum is the time that was served, and their names do not change."""

from hypothesis import given, settings
from hypothesis import strategies as st

from cloister_api.metering.store import SECONDS, ServedEnclave, due_until, slice_id, slices_of

WIDTH = SECONDS * 1_000_000
TIMES = st.integers(1_700_000_000_000_000, 1_700_000_000_000_000 + 20 * WIDTH)


def served(begin: int, end: int | None = None) -> ServedEnclave:
    return ServedEnclave("e", "o", "c", "web", 2, 8192, 0, begin, end)


@settings(max_examples=60)
@given(TIMES, TIMES)
def test_the_sum_of_slices_is_the_time(one: int, other: int) -> None:
    begin, end = sorted((one, other))
    found = list(slices_of(begin, end))
    assert sum(each.microseconds for each in found) == end - begin
    assert all(each.begin % SECONDS == 0 and 0 < each.microseconds <= WIDTH for each in found)
    assert [each.begin for each in found] == sorted({each.begin for each in found})


@settings(max_examples=60)
@given(TIMES, TIMES)
def test_what_serves_is_metered_up_to_the_last_slice_that_is_over(begin: int, now: int) -> None:
    until = due_until(served(begin), now)
    assert until == begin or until % WIDTH == 0
    assert begin <= until
    assert until <= max(begin, now) < max(until, begin) + WIDTH or now < begin


def test_what_ended_is_metered_to_its_end_whenever_that_is_seen() -> None:
    assert due_until(served(10, 25), now=7) == 25
    assert due_until(served(10, 25), now=10**15) == 25
    assert due_until(served(10, 5), now=100) == 10


def test_a_slice_is_known_by_its_enclave_and_begin() -> None:
    assert slice_id("a", 300) == slice_id("a", 300)
    assert len({slice_id("a", 300), slice_id("a", 600), slice_id("b", 300)}) == 3
