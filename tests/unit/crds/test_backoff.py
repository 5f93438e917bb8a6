"""Exponential backoff: doubled, capped, spread."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloister_crds.backoff import Backoff


@pytest.mark.parametrize(
    ("failures", "delay"), [(1, 0.5), (2, 1.0), (3, 2.0), (4, 3.0), (5, 3.0), (10**6, 3.0)]
)
def test_the_delay_of_a_backoff_is_doubled_up_to_its_cap(failures: int, delay: float) -> None:
    backoff = Backoff(first=0.5, longest=3.0)
    assert backoff.delay(failures) == backoff.jittered(failures) == delay


@given(failures=st.integers(1, 10_000))
def test_jitter_stays_within_its_factors(failures: int) -> None:
    backoff = Backoff(first=0.1, longest=10.0, jitter=(0.75, 1.25))
    delay = backoff.delay(failures)
    assert delay * 0.75 <= backoff.jittered(failures) <= delay * 1.25
