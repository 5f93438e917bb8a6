"""The stream of a page: server-sent events that say that something changed, and no more.

Source: WHATWG HTML, "Server-sent events". The page then fetches itself, with the rights of any
request. A stream ends when the session or the membership of its user does.
"""

import asyncio
import random
import re
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from cloister_api.dashboard.live import ALL_PARTS, Feed, Follower, container_part
from cloister_api.dashboard.pages.requests import context_of, membership_of, session_of
from cloister_api.errors import ApiError, bad_request
from cloister_api.ledger.keys.sessions import SessionRow

HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    # Proxies that buffer responses would hold events back.
    (b"x-accel-buffering", b"no"),
)
BEAT_SECONDS = 15.0
"""How often a stream says that it lives."""
COALESCED = (0.2, 0.45)
"""Seconds for which changes are collected: few pages fetch themselves at the same moment."""
MOST_PARTS = 8
CONTAINER = re.compile(re.escape(container_part("")) + "[0-9a-f-]{36}")


async def events(request: Request) -> Response:
    """Report to a page that parts of it have changed."""
    parts = frozenset(request.query_params.getlist("part"))
    wrong = sorted(each for each in parts if not is_part(each))
    if wrong or not 1 <= len(parts) <= MOST_PARTS:
        known = ", ".join(sorted(ALL_PARTS))
        raise bad_request("part", f"part: name one to {MOST_PARTS} of: {known}, container:UID")
    membership, session = membership_of(request), session_of(request)
    sessions, feed = context_of(request).sessions, request.app.state.feed()
    slug = membership.organization.metadata.name

    def is_member() -> bool:
        try:
            return sessions.membership(session.user, slug).role is membership.role
        except ApiError:
            return False

    namespace = membership.organization.spec.namespace
    since = request.query_params.get("since", "")
    return EventStream(feed, namespace, session, parts, since, is_member=is_member)


def is_part(text: str) -> bool:
    """Return whether a stream may wait for a part of that name."""
    return text in ALL_PARTS or CONTAINER.fullmatch(text) is not None


class EventStream(Response):
    """A response that continues until its page, its session, its membership or the process ends.

    Parameters
    ----------
    since
        Moment of the feed at which the page was made; empty means now.
    is_member
        Returns whether the user's role is still what it was.
    """

    def __init__(
        self,
        feed: Feed,
        namespace: str,
        session: SessionRow,
        parts: frozenset[str],
        since: str,
        *,
        is_member: Callable[[], bool],
    ) -> None:
        super().__init__()
        self._feed = feed
        self._follow = (namespace, session.id, session.user, parts, since)
        self._is_member = is_member

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events.

        Raises
        ------
        ApiError
            503 when there are too many streams.
        """
        del scope
        with self._feed.follow(*self._follow) as follower:
            await self._run(follower, receive, send)

    async def _run(self, follower: Follower, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
        await send(event("alive"))
        gone = asyncio.ensure_future(_disconnected(receive))
        gone.add_done_callback(lambda _: follower.woken.set())
        try:
            while not (gone.done() or self._feed.ended):
                text = await self._next(follower)
                if text is None:
                    continue
                await send(event(text))
                if text == "ended":
                    break
        finally:
            gone.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _next(self, follower: Follower) -> str | None:
        """Wait, and return the name of the next event; None if there is nothing to say."""
        try:
            async with asyncio.timeout(BEAT_SECONDS):
                await follower.woken.wait()
        except TimeoutError:
            return "alive" if self._is_member() else "ended"
        if follower.ended or not self._is_member():
            return "ended"
        if not follower.changed:
            return None
        await asyncio.sleep(random.uniform(*COALESCED))
        return "changed" if follower.take() else None


def event(name: str) -> dict[str, object]:
    """Return an event as a part of the response; browsers ignore events without data."""
    body = f"event: {name}\ndata: .\n\n".encode()
    return {"type": "http.response.body", "body": body, "more_body": True}


async def _disconnected(receive: Receive) -> None:
    """Wait until the browser is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


ROUTES = (Route("/o/{slug}/events", events),)
"""Routes of the module."""
