"""The time, read in one place, and the clock of a server where this machine's may be wrong.

Decisions take ``now`` as an argument; their callers read it here. Tests hand in a fake clock, and
the simulation of the operator runs whole processes under `CLOCKS` of its own.

What the API server wrote (when an object was created) and what a program reads on its own clock are
compared in every decision about a deadline. Only when both are of one clock is the comparison
right, and all who talk to one server agree about the time.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

__all__ = ["CLOCKS", "Clock", "Clocks", "ServerClock", "monotonic", "utc_now", "utc_text"]

Clock = Callable[[], datetime]
"""A function that returns the present time, with zone UTC."""


def _system_time() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - this is the place that the ban names


@dataclass(slots=True)
class Clocks:
    """The clocks of a machine."""

    utc: Clock = _system_time
    """The wall clock, which may jump."""
    monotonic: Callable[[], float] = time.monotonic
    """Seconds since some moment, for durations."""


CLOCKS = Clocks()
"""The clocks of this machine."""


def utc_now() -> datetime:
    """Return the present time in UTC."""
    return CLOCKS.utc()


def monotonic() -> float:
    """Return the seconds since some moment; only differences mean something."""
    return CLOCKS.monotonic()


def utc_text(moment: datetime, timespec: str = "auto") -> str:
    """Write a time as Kubernetes and the API do: ISO 8601, its zone as the letter Z.

    Parameters
    ----------
    moment
        A time with zone UTC.
    timespec
        How exact, as `datetime.isoformat` takes it.
    """
    return moment.isoformat(timespec=timespec).replace("+00:00", "Z")


logger = logging.getLogger(__name__)

_SECOND: Final = timedelta(seconds=1)
_WORTH_A_WARNING: Final = timedelta(seconds=10)
"""How far the machine's clock is off before its administrator is notified."""


class ServerClock:
    """A clock that returns the time of a server: this machine's, corrected by what was observed.

    Each response of the server says what its time was at some moment between the request and the
    response (RFC 9110, 6.6.1, "Date"). So the difference of the clocks lies between two bounds, and
    it is changed only as far as it must be to lie there: a response that took long, or was
    read late, says little, and a right clock is never touched.
    """

    def __init__(self, local: Clock = utc_now) -> None:
        self.local = local
        """The clock of this machine."""
        self.offset = timedelta(0)
        """What is added to it; negative when it is ahead of the server's."""
        self._warned = timedelta(0)

    def __call__(self) -> datetime:
        """Return the present time in UTC, by the server's clock."""
        return self.local() + self.offset

    def heard(self, date: str | None, *, sent: datetime) -> None:
        """Take in the time of a response.

        Parameters
        ----------
        date
            Its header Date; None if it has none. Anything but a date is ignored.
        sent
            When the request was sent, by the clock of this machine.
        """
        at = _read(date)
        if at is None:
            return
        received = self.local()
        # The header has whole seconds, rounded down.
        least, most = at - received, at + _SECOND - sent
        if least > most:
            # The machine's clock was set back between the two; the next response shows.
            return
        self.offset = min(max(self.offset, least), most)
        if abs(self.offset - self._warned) >= _WORTH_A_WARNING:
            self._warned = self.offset
            self._tell()

    def _tell(self) -> None:
        seconds = round(self.offset.total_seconds())
        if abs(seconds) < _WORTH_A_WARNING.total_seconds():
            logger.info("the clock of this machine is right again by the API server's")
            return
        logger.warning(
            "the clock of this machine is %d s %s the API server's, whose time is used;"
            " have both set by NTP",
            abs(seconds),
            "behind" if seconds > 0 else "ahead of",
        )


def _read(date: str | None) -> datetime | None:
    """Parse a time in the format of HTTP; None if it is not one (RFC 9110, 5.6.7)."""
    if not date:
        return None
    try:
        found = parsedate_to_datetime(date)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
