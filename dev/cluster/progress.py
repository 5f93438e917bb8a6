"""Tells what a long command does: what, how far, how long; on standard error."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

__all__ = ["Progress"]


class Progress:
    """A line per step, alive on a terminal."""

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Tell that something begins, that it still goes on, and how long it took."""
        began = time.monotonic()
        over = threading.Event()
        if not self._quiet and not self._stream.isatty():
            self._say(f"{what} …\n")
        ticker = threading.Thread(target=self._tick, args=(what, began, over), daemon=True)
        ticker.start()
        try:
            yield
        finally:
            over.set()
            ticker.join()
        start = "\r\033[K" if self._stream.isatty() else ""
        self._say(f"{start}{what}: done in {time.monotonic() - began:.0f} s\n")

    def _tick(self, what: str, began: float, over: threading.Event) -> None:
        pause = 1.0 if self._stream.isatty() else 30.0
        while not over.wait(pause):
            seconds = time.monotonic() - began
            if self._stream.isatty():
                self._say(f"\r\033[K{what} … {seconds:.0f} s")
            else:
                self._say(f"{what} … {seconds:.0f} s so far\n")

    def _say(self, text: str) -> None:
        if not self._quiet:
            self._stream.write(text)
            self._stream.flush()
