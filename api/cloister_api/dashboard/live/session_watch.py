"""Ends the streams of sessions that are over: one query for all of a process, twice a second.

A session may be ended at another replica or by a command, which only the ledger tells.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from sqlalchemy.exc import SQLAlchemyError

from cloister_api.dashboard.live.feed import Feed

__all__ = ["SessionWatch"]

logger = logging.getLogger(__name__)

EVERY = 0.5
"""Seconds between two queries; there is none while there are no streams."""


class SessionWatch:
    """The watch of a feed's sessions.

    Parameters
    ----------
    feed
        The feed, whose streams it ends.
    over
        Returns which sessions, by identifier, do not last any more.
    every
        Seconds between two queries.
    """

    def __init__(
        self,
        feed: Feed,
        over: Callable[[Collection[str]], Awaitable[Collection[str]]],
        *,
        every: float = EVERY,
    ) -> None:
        self._feed = feed
        self._over = over
        self._every = every
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, in the running event loop."""
        self._task = asyncio.create_task(self.run())
        self._task.add_done_callback(_report)

    def end(self) -> None:
        """End the feed, and so the watch, because the process shuts down."""
        self._feed.end()

    async def run(self) -> None:
        """Watch until the feed ends; whatever ends the watch ends the feed."""
        try:
            while not self._feed.ended:
                await asyncio.sleep(self._every)
                await self._look()
        finally:
            self._feed.end()

    async def _look(self) -> None:
        sessions = self._feed.sessions
        if not sessions:
            return
        try:
            over = await self._over(sessions)
        except (SQLAlchemyError, OSError) as error:
            logger.warning("it is not known which sessions last: %s", error)
            return
        self._feed.end_sessions(over)


def _report(task: asyncio.Task[None]) -> None:
    """Log why a watch has failed: pages are not kept current until the process starts again."""
    if not task.cancelled() and task.exception() is not None:
        logger.critical("live pages have ended: the watch failed", exc_info=task.exception())
