"""A client that polls a page continuously, to detect any downtime."""

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
    """A client that polls continuously, and its observations."""

    bodies: list[str] = field(default_factory=list)
    """Responses in order, one for each change of the body."""
    failures: list[str] = field(default_factory=list)
    """Requests without a 200 response, each with its status or error."""
    count: int = 0
    """Number of requests."""
    stopped: threading.Event = field(default_factory=threading.Event)
    """Set to stop polling."""

    def run(self, address: str, host: str) -> None:
        """Send requests, each on a connection of its own, until stopped."""
        while not self.stopped.wait(PAUSE):
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
    """Poll in the background until the block ends."""
    client = PollingClient()
    thread = threading.Thread(target=client.run, args=(address, host), daemon=True)
    thread.start()
    try:
        yield client
    finally:
        client.stopped.set()
        thread.join(30)
