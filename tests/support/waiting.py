"""Wait for a condition with a deadline, never for a length of time."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar

from dev.cluster import KubectlError

__all__ = ["PATIENCE", "accepts", "storage_starts", "until", "until_sync"]

T = TypeVar("T")
PATIENCE = 180.0
"""Seconds to wait unless a test says otherwise: many times what a slow machine takes, since only a
test that fails waits so long."""
NOT_YET = (AssertionError, KubectlError)
"""Errors that count as "not yet": what a probe reads, or reads with, may not exist yet."""


async def until(
    probe: Callable[[], Awaitable[T]],
    *,
    within: float = PATIENCE,
    every: float = 0.1,
    what: str = "",
) -> T:
    """Poll until the result is true.

    Parameters
    ----------
    probe
        Probe to call; errors of the kinds in `NOT_YET` count as no result.
    within
        Timeout in seconds.
    every
        Seconds between two calls.
    what
        What is awaited, for the message of the failure.

    Raises
    ------
    AssertionError
        When no result was true in time; shows the last result.
    """
    deadline = time.monotonic() + within
    while True:
        last: object
        try:
            result = await probe()
            if result:
                return result
            last = result
        except NOT_YET as error:
            last = error
        if time.monotonic() > deadline:
            raise AssertionError(f"{what or probe} not seen within {within} s; last: {last!r}")
        await asyncio.sleep(every)


def until_sync(
    probe: Callable[[], T], *, within: float = PATIENCE, every: float = 0.2, what: str = ""
) -> T:
    """Poll until the result is true, as `until` does, outside an event loop.

    Raises
    ------
    AssertionError
        When no result was true in time; shows the last result.
    """
    deadline = time.monotonic() + within
    while True:
        last: object
        try:
            result = probe()
            if result:
                return result
            last = result
        except NOT_YET as error:
            last = error
        if time.monotonic() > deadline:
            raise AssertionError(f"{what or probe} not seen within {within} s; last: {last!r}")
        time.sleep(every)


def accepts(path: Path) -> bool:
    """Return whether a server accepts connections on a Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as plain:
        plain.settimeout(10)
        try:
            plain.connect(str(path))
        except OSError:
            return False
    return True


def storage_starts(status: int, text: str) -> bool:
    """Return whether an API server refused because the store of a kind is not ready yet.

    It does so for a moment after a CRD was installed or changed, which another test may
    have done; the server's clients are expected to retry.
    """
    return status == HTTPStatus.TOO_MANY_REQUESTS and "storage is (re)initializing" in text
