"""The time by a server's clock: never touched without need, right within what answers tell."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from cloister_clients.clock import ServerClock

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


class Local:
    """A clock of a machine, which a test sets."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        """Return the time that the machine believes."""
        return self.now


def date(at: datetime) -> str:
    return format_datetime(at.replace(microsecond=0), usegmt=True)


def answer(clock: ServerClock, local: Local, *, ahead: timedelta, took: timedelta) -> None:
    """Have a request answered by a server that is ahead; the answer is written in the middle."""
    sent = local.now
    local.now += took
    clock.heard(date(sent + took / 2 + ahead), sent=sent)


@pytest.mark.parametrize("past", [0, 0.001, 0.5, 0.999])
@pytest.mark.parametrize("took", [0.0, 0.004, 2.0, 90.0])
def test_a_right_clock_is_not_touched(past: float, took: float) -> None:
    local = Local(NOON + timedelta(seconds=past))
    clock = ServerClock(local)
    for _ in range(20):
        answer(clock, local, ahead=timedelta(0), took=timedelta(seconds=took))
    assert clock.offset == timedelta(0)


@pytest.mark.parametrize("ahead", [timedelta(minutes=40), -timedelta(hours=2), 3 * SECOND])
def test_the_time_is_the_servers(ahead: timedelta) -> None:
    local = Local(NOON)
    clock = ServerClock(local)
    answer(clock, local, ahead=ahead, took=0.1 * SECOND)
    assert abs(clock() - (local.now + ahead)) <= 1.1 * SECOND


def test_a_clock_that_is_set_is_followed_with_the_next_answer() -> None:
    local = Local(NOON)
    clock = ServerClock(local)
    local.now += timedelta(hours=1)
    answer(clock, local, ahead=-timedelta(hours=1), took=0.1 * SECOND)
    assert abs(clock() - NOON) <= 1.2 * SECOND
    local.now -= timedelta(hours=1)
    answer(clock, local, ahead=timedelta(0), took=0.1 * SECOND)
    assert abs(clock() - NOON) <= 1.3 * SECOND


def test_a_late_response_hardly_corrects_the_clock() -> None:
    local = Local(NOON)
    clock = ServerClock(local)
    answer(clock, local, ahead=timedelta(minutes=40), took=0.1 * SECOND)
    before = clock.offset
    sent = local.now
    at = date(local.now + timedelta(minutes=40))
    local.now += timedelta(minutes=5)
    clock.heard(at, sent=sent)
    assert clock.offset == before


def test_a_clock_that_is_set_back_during_a_request_waits_for_the_next_answer() -> None:
    local = Local(NOON)
    clock = ServerClock(local)
    local.now -= timedelta(hours=1)
    clock.heard(date(NOON), sent=NOON)
    assert clock.offset == timedelta(0)


@pytest.mark.parametrize("header", [None, "", "yesterday", "Sun, 99 Nov 2026 12:00:00 GMT"])
def test_an_invalid_date_header_is_ignored(header: str | None) -> None:
    local = Local(NOON)
    clock = ServerClock(local)
    clock.heard(header, sent=NOON)
    assert clock() == NOON


def test_clock_skew_is_logged_once_and_when_it_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    local = Local(NOON)
    clock = ServerClock(local)
    for ahead in (-600, -600, -603, 0, 0):
        answer(clock, local, ahead=timedelta(seconds=ahead), took=0.01 * SECOND)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "599 s ahead of the API server's" in told[0]
    assert "right again" in told[1]
