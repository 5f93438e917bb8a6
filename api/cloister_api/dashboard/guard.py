"""The guard in front of all pages, in pure ASGI.

Sessions, and protection against cross-site requests (CSRF).
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Protocol
from urllib.parse import urlencode

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from cloister_api.dashboard.rendering import SECURITY_HEADERS
from cloister_api.errors import ApiError, forbidden, from_ledger
from cloister_api.http.access_log import CURRENT_REQUEST, log_request, route_of
from cloister_api.http.metrics import HttpMetrics
from cloister_api.http.middleware import (
    SAFE_METHODS,
    Callers,
    ResponseSender,
    Shutdown,
    request_id_in,
)
from cloister_api.ledger.keys.sessions import SessionRow
from cloister_api.sessions.provider.attempt import safe_next
from cloister_api.sessions.settings import DashboardSettings


def origin_refusal(
    settings: DashboardSettings,
    *,
    method: str,
    site: str | None,
    mode: str | None,
    destination: str | None,
    origin: str | None,
) -> str:
    """Return why a request is not of the dashboard's own pages; empty if it is.

    Parameters
    ----------
    site, mode, destination
        Headers Sec-Fetch-Site, Sec-Fetch-Mode and Sec-Fetch-Dest; None if it has none.
    origin
        Header Origin; None if it has none.
    """
    safe = method in SAFE_METHODS
    if site is None:
        if origin == settings.address or (safe and origin is None):
            return ""
        return "the request names no page of this dashboard; open it and try again"
    if site == "same-origin" or (safe and site == "none"):
        return ""
    if safe and mode == "navigate" and destination == "document":
        return ""
    return "the request comes from a page of another address; open the dashboard and try again"


logger = logging.getLogger(__name__)

OPEN_PREFIXES = ("/session/", "/static/")
"""What paths begin with that need nobody signed in; so does `/session` itself."""
STREAM = re.compile(r"/o/[^/]+/events")
HOME_PATHS = ("/", "/organizations")
"""Pages to which a sign-in leads anyway."""
FAILED = ApiError(
    500, "INTERNAL_ERROR", "the dashboard failed; name the request to the administrator"
)


class FindSession(Protocol):
    """Returns the session of a cookie's value."""

    def __call__(self, value: str, *, used: bool) -> Awaitable[SessionRow | None]:
        """Return it, and note its use where somebody uses it; None if there is none."""


class CountSession(Protocol):
    """Counts a request of a session."""

    def __call__(self, session: SessionRow, /, *, writes: bool) -> tuple[tuple[str, str], ...]:
        """Count it and return headers, or raise ApiError."""


ErrorPage = Callable[[ApiError, str, SessionRow | None], Response]
"""Builds the page of an error, of a request, for who is signed in."""


def cookie_name(service: str) -> str:
    """Return the name of the cookie, whose prefix keeps other hosts from setting it."""
    return f"__Host-{service}"


def is_stream(path: str) -> bool:
    """Return whether a request continues as long as a page is open."""
    return STREAM.fullmatch(path) is not None


def is_open(path: str) -> bool:
    """Return whether a path needs nobody signed in."""
    return path == "/session" or path.startswith(OPEN_PREFIXES)


def sign_in_place(scope: Scope) -> str:
    """Return the address of the sign-in page, which leads back to the page that was asked for."""
    query = scope["query_string"].decode("latin-1")
    asked = scope["path"] + (f"?{query}" if query else "")
    leads_home = scope["path"] in HOME_PATHS or is_stream(scope["path"])
    if leads_home or scope["method"] != "GET" or safe_next(asked) != asked:
        return "/session"
    return f"/session?{urlencode({'next': asked}, safe='/')}"


def refuse_elsewhere(
    settings: DashboardSettings, method: str, headers: Headers, *, navigable: bool
) -> None:
    """Refuse a request that is for another host, or comes from a page of another origin.

    Parameters
    ----------
    navigable
        Whether links of other sites may lead there.

    Raises
    ------
    ApiError
        421 at another host, 403 from another origin.
    """
    if headers.get("host", "").lower() != settings.host:
        raise ApiError(421, "BAD_REQUEST", f"the dashboard is at {settings.address}")
    refusal = origin_refusal(
        settings,
        method=method,
        site=headers.get("sec-fetch-site"),
        mode=headers.get("sec-fetch-mode") if navigable else None,
        destination=headers.get("sec-fetch-dest"),
        origin=headers.get("origin"),
    )
    if refusal:
        raise forbidden(refusal)


async def session_in(
    headers: Headers, cookie: str, find: FindSession, *, used: bool
) -> SessionRow | None:
    """Return the session of the cookie of a request; None if there is none that lasts."""
    given = cookie_in(headers, cookie)
    return await find(given, used=used) if given else None


def cookie_in(headers: Headers, name: str) -> str:
    """Return the value of a cookie of a request; empty if there is none.

    The standard library's parser is quadratic before Python 3.11.10 and 3.12.6. A value may stand
    in quotation marks (RFC 6265, 4.1.1), as one with an equals sign does; ours need no escapes.
    """
    for each in headers.get("cookie", "").split(";"):
        found, _, value = each.partition("=")
        if found.strip() == name:
            return value.strip().removeprefix('"').removesuffix('"')
    return ""


class DashboardGuard:
    """The middleware.

    Parameters
    ----------
    take
        Takes a request from the token bucket of a session, and returns headers.
    shutdown
        Once it has begun, responses close their connections.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: DashboardSettings,
        find: FindSession,
        cookie: Callable[[], str],
        take: CountSession,
        callers: Callers,
        error_page: ErrorPage,
        metrics: HttpMetrics,
        shutdown: Shutdown,
    ) -> None:
        self._app = app
        self._settings = settings
        self._find = find
        self._cookie = cookie
        self._take = take
        self._callers = callers
        self._error_page = error_page
        self._metrics = metrics
        self._shutdown = shutdown

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or refuse it."""
        headers = Headers(scope=scope)
        request_id = request_id_in(headers)
        state = scope.setdefault("state", {})
        state["request_id"], state["session"] = request_id, None
        CURRENT_REQUEST.set(request_id)
        clock = asyncio.get_running_loop().time
        begun = clock()
        response = ResponseSender(send, request_id, self._shutdown)
        response.more += SECURITY_HEADERS
        stream = is_stream(scope["path"])
        # A stream lasts as long as its page is open, and would always count as running.
        running = contextlib.nullcontext() if stream else self._metrics.running.track_inprogress()
        with running:
            try:
                await self._serve(scope, headers, receive, response)
            except ApiError as error:
                # A response that has begun cannot become an error page.
                if response.status:
                    raise
                page = self._error_page(error, request_id, state["session"])
                await page(scope, receive, response.send)
            except Exception as error:
                logger.exception("request %s failed", request_id)
                if response.status:
                    raise
                refusal = from_ledger(error) or FAILED
                page = self._error_page(refusal, request_id, state["session"])
                await page(scope, receive, response.send)
            finally:
                seconds = clock() - begun
                if not (stream and response.status == HTTPStatus.OK):
                    route = route_of(scope)
                    self._metrics.completed(scope["method"], route, response.status, seconds)
                log_request(scope, response.status, seconds)

    async def _serve(
        self, scope: Scope, headers: Headers, receive: Receive, response: ResponseSender
    ) -> None:
        """Serve a request.

        Raises
        ------
        ApiError
            421 at another host, 403 from another origin, 429 when a session is used too often, and
            what the page raises.
        """
        refuse_elsewhere(self._settings, scope["method"], headers, navigable=True)
        path = scope["path"]
        used = scope["method"] not in SAFE_METHODS or headers.get("sec-fetch-dest") != "empty"
        is_static = path.startswith("/static/")
        session = (
            None if is_static else await session_in(headers, self._cookie(), self._find, used=used)
        )
        scope["state"]["session"] = session
        if session is None:
            app: ASGIApp = (
                self._app if is_open(path) else RedirectResponse(sign_in_place(scope), 303)
            )
            await app(scope, receive, response.send)
            return
        response.more += self._take(session, writes=scope["method"] not in SAFE_METHODS)
        if is_stream(path):
            # It counts among the streams, whose number is bound by the feed.
            await self._app(scope, receive, response.send)
            return
        # No organization has such a name: who is called as one is takes none of its requests.
        caller = f"user {session.user}"
        self._callers.enter(caller)
        try:
            await self._app(scope, receive, response.send)
        finally:
            self._callers.leave(caller)
