"""Wait for a condition with a deadline, never for a length of time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TypeVar

from dev.cluster import KubectlError

__all__ = ["storage_starts", "until", "until_sync"]

T = TypeVar("T")
NOT_YET = (AssertionError, KubectlError)
"""Errors of a question that may pass: what it looks at, or looks with, may not be there yet."""


async def until(
    question: Callable[[], Awaitable[T]],
    *,
    within: float = 60.0,
    every: float = 0.1,
    what: str = "",
) -> T:
    """Ask until the answer is true.

    Parameters
    ----------
    question
        What is asked; its errors of the kinds in `NOT_YET` count as no answer.
    within
        Seconds until the wait fails.
    every
        Seconds between two questions.
    what
        What is waited for, for the message of the failure.

    Raises
    ------
    AssertionError
        When no answer was true within the time; it shows the last answer.
    """
    deadline = time.monotonic() + within
    while True:
        last: object
        try:
            answer = await question()
            if answer:
                return answer
            last = answer
        except NOT_YET as error:
            last = error
        if time.monotonic() > deadline:
            raise AssertionError(f"{what or question} not seen within {within} s; last: {last!r}")
        await asyncio.sleep(every)


def until_sync(
    question: Callable[[], T], *, within: float = 60.0, every: float = 0.2, what: str = ""
) -> T:
    """Ask until the answer is true, as `until` does, outside an event loop.

    Raises
    ------
    AssertionError
        When no answer was true within the time; it shows the last answer.
    """
    deadline = time.monotonic() + within
    while True:
        last: object
        try:
            answer = question()
            if answer:
                return answer
            last = answer
        except NOT_YET as error:
            last = error
        if time.monotonic() > deadline:
            raise AssertionError(f"{what or question} not seen within {within} s; last: {last!r}")
        time.sleep(every)


def storage_starts(status: int, text: str) -> bool:
    """Return whether an API server refused because the store of a kind is not ready yet.

    It says so for a moment after a definition was installed or changed, which another test may
    have done; its clients ask again, and so do ours.
    """
    return status == HTTPStatus.TOO_MANY_REQUESTS and "storage is (re)initializing" in text
