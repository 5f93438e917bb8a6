"""The throttle of counts over many objects."""

import pytest

from cloister_operator.workqueue.queue import StatusThrottle
from cloister_operator.workqueue.triggers import Key


def organization(number: int) -> Key:
    return Key("Organization", "", f"org-{number}")


def busy(count: int, at: float) -> StatusThrottle:
    """Return the throttle after the counts of so many Organizations were written at one time."""
    pace = StatusThrottle()
    for number in range(count):
        pace.wrote(organization(number), at)
    return pace


def test_the_first_write_does_not_wait() -> None:
    assert busy(200, 100.0).wait(organization(200), 100.0) == 0


@pytest.mark.parametrize(
    ("count", "pause"), [(1, 2.0), (20, 2.0), (50, 5.0), (100, 10.0), (300, 30.0), (5000, 30.0)]
)
def test_the_throttle_grows_with_the_objects_that_count(count: int, pause: float) -> None:
    pace = busy(count, 100.0)
    assert pace.wait(organization(0), 100.5) == pytest.approx(pause - 0.5)
    assert pace.wait(organization(0), 100.0 + pause) == 0


def test_objects_that_are_quiet_do_not_throttle_others() -> None:
    pace = busy(50, 100.0)
    pace.wrote(organization(0), 131.0)
    assert pace.wait(organization(0), 131.0) == pytest.approx(2.0)


def test_another_write_throttles_again() -> None:
    pace = busy(1, 100.0)
    pace.wrote(organization(0), 101.0)
    assert pace.wait(organization(0), 102.0) == pytest.approx(1.0)
