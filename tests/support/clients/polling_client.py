"""A client that asks all the time, to see whether what serves is ever away."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from dev.demo.https_client import fetch_page

__all__ = ["PollingClient", "polling"]

PAUSE = 0.05
"""Seconds between two requests."""


@dataclass
class PollingClient:
    """What a client that does not cease to ask has seen."""

    bodies: list[str] = field(default_factory=list)
    """Responses in order, one for each change of the body."""
    failures: list[str] = field(default_factory=list)
    """Requests that were not answered with 200, with what came instead."""
    count: int = 0
    """Requests that were sent."""
    over: threading.Event = field(default_factory=threading.Event)
    """Set when it is to end."""

    def request(self, address: str, host: str) -> None:
        """Send requests, each on a connection of its own, until it is over."""
        while not self.over.wait(PAUSE):
            self.count += 1
            try:
                page = fetch_page(address, 443, host, "/")
            except OSError as error:
                self.failures.append(f"{self.count}: {error}")
                continue
            if page.status != 200:
                self.failures.append(f"{self.count}: {page.status} {page.body[:200]}")
            elif self.bodies[-1:] != [page.body.strip()]:
                self.bodies.append(page.body.strip())


@contextlib.contextmanager
def polling(address: str, host: str) -> Iterator[PollingClient]:
    """Ask in the background until the block ends."""
    asker = PollingClient()
    thread = threading.Thread(target=asker.request, args=(address, host), daemon=True)
    thread.start()
    try:
        yield asker
    finally:
        asker.over.set()
        thread.join(30)
