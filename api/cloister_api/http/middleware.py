"""The guard in front of all routes, in pure ASGI.

Authentication and limits, before a body is read.
"""

import asyncio
import logging
import re
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from starlette.datastructures import Headers, MutableHeaders
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cloister_api.auth.authenticator import Principal
from cloister_api.errors import (
    ApiError,
    error_response,
    forbidden,
    from_ledger,
    unavailable,
    wrong_method,
)
from cloister_api.http.access_log import (
    CURRENT_REQUEST,
    describe_response,
    log_request,
    request_span,
    route_of,
)
from cloister_api.http.bodies import MAX_BODY, BodyLane, declared_size, replayed
from cloister_api.http.metrics import HttpMetrics
from cloister_api.settings import LimitSettings

SAFE_METHODS = frozenset({"GET", "HEAD"})
"""Methods that change nothing (RFC 9110, section 9.2.1)."""

OPEN_PREFIXES = (
    "/api/config/models",
    "/api/shim/",
    "/api/internal/usage-reports",
    "/api/webhooks/",
)
"""Paths under /api that need no admin key (spec 20.6)."""
ARRIVED = "cloister.arrived"
"""Key of a scope whose body has arrived with the headers, so that to receive it is not to wait."""
Door = Callable[[Scope, Headers], Awaitable[Principal]]
"""Returns who sends a request that arrived elsewhere than at the API's listener, or raises
ApiError."""
DOOR = "cloister.door"
"""Key of a scope with the door of its request; without one the caller has an admin key."""
BUSY = unavailable("the facade serves as many requests as it may; try again", retry_after=1)


@dataclass(frozen=True, slots=True)
class OpenPath:
    """A path that takes bodies of callers without an admin key."""

    check: Callable[[Headers], Awaitable[Any]] | None = None
    """Judges the headers before the body is read, and returns the caller or raises ApiError; None
    if the proof is in the body."""
    most_bytes: int = MAX_BODY
    """Largest body in bytes."""


class Callers:
    """The requests and bodies of all callers that are in progress.

    Parameters
    ----------
    open_paths
        Paths that take bodies without an admin key; any other open path takes none.
    """

    def __init__(self, limits: LimitSettings, open_paths: Mapping[str, OpenPath]) -> None:
        self._limits = limits
        self._open_paths = open_paths
        self._lanes: dict[str, BodyLane] = {}
        self._requests: dict[str, int] = {}
        self._total = 0

    def open_path(self, path: str) -> OpenPath | None:
        """Return what is known of an open path; None if it takes no body."""
        return self._open_paths.get(path)

    def enter(self, slug: str) -> None:
        """Count a request of an organization, until it leaves.

        Raises
        ------
        ApiError
            429 when the organization, 503 when all of them have too many in progress.
        """
        running = self._requests.get(slug, 0)
        if running >= self._limits.organization_requests:
            raise crowded(running)
        if self._total >= self._limits.requests:
            raise BUSY
        self._requests[slug] = running + 1
        self._total += 1

    def leave(self, slug: str) -> None:
        """Count a request no longer."""
        self._total -= 1
        left = self._requests[slug] - 1
        if left:
            self._requests[slug] = left
        else:
            del self._requests[slug]

    async def read(self, caller: str, headers: Headers, receive: Receive, bound: int) -> Receive:
        """Read the body of a request, and return a receive function that gives it.

        Parameters
        ----------
        caller
            Whose bodies share a lane: an organization, or an open path.
        bound
            Largest body in bytes.

        Raises
        ------
        ApiError
            As `BodyLane.read`.
        """
        lane = self._lanes.get(caller)
        if lane is None:
            limits = self._limits
            lane = self._lanes[caller] = BodyLane(
                most_bytes=limits.body_bytes,
                most=max(1, limits.connections // 8),
                seconds=limits.body_seconds,
            )
        try:
            body = await lane.read(headers, receive, bound)
        finally:
            if lane.idle:
                self._lanes.pop(caller, None)
        return replayed(body, receive)


def is_awaited(scope: Scope, headers: Headers, bound: int) -> bool:
    """Return whether the body of a request must be read, because it has not arrived yet.

    Raises
    ------
    ApiError
        As `declared_size`.
    """
    size = declared_size(headers, bound)
    return size is None or (size > 0 and ARRIVED not in scope)


def needs_key(path: str) -> bool:
    """Return whether a path is only for holders of an admin key."""
    if path != "/api" and not path.startswith("/api/"):
        return False
    return not path.startswith(OPEN_PREFIXES)


def crowded(running: int) -> ApiError:
    """429 because of the organization's other requests."""
    return ApiError(
        429,
        "RATE_LIMITED",
        f"the organization has {running} requests in progress, as many as it may; wait for some",
        retry_after=1,
    )


logger = logging.getLogger(__name__)

Authenticate = Callable[[str | None], Awaitable[Principal]]
"""Returns who sends an Authorization header, or raises ApiError."""


class TakeToken(Protocol):
    """Counts a request of a caller."""

    def __call__(self, principal: Principal, /, *, writes: bool) -> tuple[tuple[str, str], ...]:
        """Count it and return headers, or raise ApiError."""


REQUEST_ID = re.compile(r"^[A-Za-z0-9._-]{1,128}$")
CONSISTENCY_TOKEN = b"x-consistency-token"
ORGANIZATION = "x-organization"
"""Header that names the organization which is meant."""
FAILED = ApiError(
    500, "INTERNAL_ERROR", "the facade failed; name the request_id to the administrator"
)


@dataclass(slots=True)
class Shutdown:
    """Whether the process is shutting down."""

    begun: bool = False
    """Whether it has begun."""
    listeners: list[Callable[[], None]] = field(default_factory=list)
    """Called once it has begun: endless responses must end."""

    def tell(self) -> None:
        """Call the listeners, each once."""
        while self.listeners:
            self.listeners.pop()()


class ResponseSender:
    """Sends the response to one request, with the headers that every response has."""

    __slots__ = ("_send", "_shutdown", "more", "status")

    def __init__(self, send: Send, request_id: str, shutdown: "Shutdown") -> None:
        self._send = send
        self._shutdown = shutdown
        self.more = [("x-request-id", request_id)]
        """Further headers, by name."""
        self.status = 0
        """Status of the response; 0 if none has begun."""

    async def send(self, message: Message) -> None:
        """Pass a message on."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in self.more:
                headers[name] = value
            if self._shutdown.begun:
                headers["connection"] = "close"
        await self._send(message)


class RequestGuard:
    """The middleware.

    Parameters
    ----------
    shutdown
        Once it has begun, responses close their connections.
    hot
        Routes, by method and path, of requests that are sent all the time: without a query and
        without a version to be seen they go past the framework, which costs several times as much
        as the response.
    literal
        Methods of every path without a parameter. Such a path is not a value of a parameter next to
        it: another method on it is 405, not the look-up of something of that name.
    follow_callers
        Whether a request continues the trace that its headers name.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        authenticate: Authenticate,
        take: TakeToken,
        callers: Callers,
        metrics: HttpMetrics,
        shutdown: Shutdown,
        hot: Mapping[tuple[str, str], Route],
        literal: Mapping[str, frozenset[str]],
        follow_callers: bool = False,
    ) -> None:
        self._app = app
        self._authenticate = authenticate
        self._take = take
        self._callers = callers
        self._metrics = metrics
        self._shutdown = shutdown
        self._hot = hot
        self._literal = literal
        self._follow_callers = follow_callers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = request_id_in(headers)
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        if scope["path"] in self._literal:
            state["literal_path"] = scope["path"]
        CURRENT_REQUEST.set(request_id)
        clock = asyncio.get_running_loop().time
        begun = clock()
        response = ResponseSender(send, request_id, self._shutdown)
        traced = request_span(scope, headers, request_id, follow_callers=self._follow_callers)
        with self._metrics.running.track_inprogress(), traced as current:
            try:
                if needs_key(scope["path"]):
                    await self._serve_holder(scope, headers, receive, response)
                else:
                    await self._serve_open(scope, headers, receive, response)
            except ApiError as error:
                # Of a check or a hot route; the framework handles those of all others itself.
                if response.status:
                    raise
                await error_response(error, request_id)(scope, receive, response.send)
            except Exception as error:
                logger.exception("request %s failed", request_id)
                if response.status:
                    raise
                refusal = from_ledger(error) or FAILED
                await error_response(refusal, request_id)(scope, receive, response.send)
            finally:
                seconds = clock() - begun
                self._metrics.completed(scope["method"], route_of(scope), response.status, seconds)
                describe_response(current, scope, response.status)
                log_request(scope, response.status, seconds)

    async def _serve_holder(
        self, scope: Scope, headers: Headers, receive: Receive, response: ResponseSender
    ) -> None:
        """Serve a request of the holder of an admin key, or of a caller that another door admits.

        Raises
        ------
        ApiError
            401 or 403 when the caller is not admitted, 429 when they call too often; as `Callers`.
        """
        door: Door | None = scope.get(DOOR)
        if door is None:
            principal = await self._authenticate(headers.get("authorization"))
            refuse_another_organization(headers, principal)
        else:
            principal = await door(scope, headers)
        scope["state"]["principal"] = principal
        try:
            # Counted before the body is read: a refused request costs no memory.
            response.more += self._take(principal, writes=scope["method"] not in SAFE_METHODS)
        except ApiError:
            self._metrics.limited()
            raise
        slug = principal.slug
        self._callers.enter(slug)
        try:
            self._refuse_method(scope)
            if is_awaited(scope, headers, MAX_BODY):
                receive = await self._callers.read(slug, headers, receive, MAX_BODY)
            await self._app_of(scope)(scope, receive, response.send)
        finally:
            self._callers.leave(slug)

    async def _serve_open(
        self, scope: Scope, headers: Headers, receive: Receive, response: ResponseSender
    ) -> None:
        """Serve a request on a path that needs no admin key.

        Raises
        ------
        ApiError
            405, what the check of the headers finds, and as `Callers.read`.
        """
        path = scope["path"]
        self._refuse_method(scope)
        known = self._callers.open_path(path)
        # Elsewhere nobody reads a body, so that none is kept.
        if known is not None:
            if known.check is not None:
                scope["state"]["caller"] = await known.check(headers)
            if is_awaited(scope, headers, known.most_bytes):
                receive = await self._callers.read(path, headers, receive, known.most_bytes)
        await self._app_of(scope)(scope, receive, response.send)

    def _refuse_method(self, scope: Scope) -> None:
        """Refuse a method that a path without parameters does not know.

        Raises
        ------
        ApiError
            405 with the methods that it knows.
        """
        methods = self._literal.get(scope["path"])
        if methods is not None and scope["method"] not in methods:
            raise wrong_method(methods)

    def _app_of(self, scope: Scope) -> ASGIApp:
        """Return the application of a request."""
        found = self._hot.get((scope["method"], scope["path"]))
        if found is None or scope["query_string"] or names_version(scope):
            return self._app
        scope["route"] = found
        return found.app


def request_id_in(headers: Headers) -> str:
    """Return the identifier that a request brings, or a new one."""
    given = headers.get("x-request-id", "")
    return given if REQUEST_ID.match(given) else str(uuid.uuid4())


def refuse_another_organization(headers: Headers, principal: Principal) -> None:
    """Refuse a request that means another organization than that of its admin key.

    Raises
    ------
    ApiError
        403.
    """
    meant = headers.get(ORGANIZATION)
    if meant is not None and meant != principal.slug:
        raise forbidden(
            f"X-Organization: this admin key is only of organization {principal.slug}; leave the "
            "header out, or use a key of the other organization"
        )


def names_version(scope: Scope) -> bool:
    """Return whether a request names a version that its response must have seen."""
    return any(name == CONSISTENCY_TOKEN for name, _ in scope["headers"])
