"""Progress display of long tasks, written to stderr: step, progress, elapsed time."""

import sys
import time
from typing import TextIO

LINE_EVERY = 15.0
"""Seconds between two lines where the output is not a terminal."""


class Progress:
    """A status line on a terminal; elsewhere a plain line now and then.

    Parameters
    ----------
    stream
        Where it writes; None is stderr.
    """

    def __init__(self, *, stream: TextIO | None = None, quiet: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._live = self._stream.isatty()
        self._last = 0.0
        self._open = False

    def say(self, text: str) -> None:
        """Write a permanent line."""
        if self._quiet:
            return
        self._end_status()
        print(text, file=self._stream, flush=True)

    def step(self, what: str, done: int, total: int, since: float) -> None:
        """Show the progress of a step.

        Parameters
        ----------
        done, total
            Progress in the unit that ``what`` names; a total of 0 = show no numbers.
        since
            ``time.monotonic()`` at its start.
        """
        now = time.monotonic()
        if self._quiet or now - self._last < (0.2 if self._live else LINE_EVERY):
            return
        self._last = now
        counts = f" {min(done, total)}/{total}" if total else ""
        text = f"{what}{counts}, {duration(now - since)}"
        if self._live:
            print(f"\r\x1b[K{text}", end="", file=self._stream, flush=True)
            self._open = True
        else:
            print(text, file=self._stream, flush=True)

    def _end_status(self) -> None:
        if self._open:
            print("\r\x1b[K", end="", file=self._stream)
            self._open = False


def duration(seconds: float) -> str:
    """Format a duration: ``8 s``, ``2 min 05 s``."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02} s"  # noqa: PLR2004 - seconds of a minute
