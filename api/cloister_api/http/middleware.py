"""The guard in front of all routes, in pure ASGI.

Order: request identifier, authentication (before everything else, spec 20.5), rate of the key
(429), size of the body (413), media type of the body (415). Refusals have the form of all errors.
Every request is logged and counted, whatever its response.
"""

import asyncio
import logging
import re
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cloister_api.auth.authenticator import Principal
from cloister_api.errors import ApiError, error_response, wrong_method
from cloister_api.http.access_log import CURRENT_REQUEST, log_request, route_of
from cloister_api.http.metrics import HttpMetrics

__all__ = ["REPORT_PATH", "RequestGuard", "Shutdown", "needs_key"]

logger = logging.getLogger(__name__)

Authenticate = Callable[[str | None], Awaitable[Principal]]
"""Returns who sends an Authorization header, or raises ApiError."""
TakeToken = Callable[[Principal], tuple[tuple[str, str], ...]]
"""Takes one request from the token bucket of a key and returns headers, or raises ApiError."""

REQUEST_ID = re.compile(r"^[A-Za-z0-9._-]{1,128}$")
MAX_BODY = 1024 * 1024
"""Largest body in bytes."""
MAX_REPORT = 4 * MAX_BODY
"""Largest report of usage in bytes: a thousand events with all their attributes."""
REPORT_PATH = "/api/internal/usage-reports"
CONSISTENCY_TOKEN = b"x-consistency-token"
OPEN_PATHS = (
    "/api/config/models",
    "/api/shim/",
    REPORT_PATH,
    "/api/webhooks/",
)
"""Paths under /api that need no admin key (spec 20.6)."""
FAILED = ApiError(
    500, "INTERNAL_ERROR", "the facade failed; name the request_id to the administrator"
)
MEDIA_TYPE = ApiError(
    415, "UNSUPPORTED_MEDIA_TYPE", "send the body with the header Content-Type: application/json"
)


@dataclass(slots=True)
class Shutdown:
    """Whether the process is shutting down."""

    begun: bool = False
    """Whether it has begun."""


class ResponseSender:
    """Sends the response to one request, with the headers that every response has."""

    __slots__ = ("_send", "_shutdown", "more", "status")

    def __init__(self, send: Send, request_id: str, shutdown: "Shutdown") -> None:
        self._send = send
        self._shutdown = shutdown
        self.more = [("x-request-id", request_id)]
        """Further headers, by name."""
        self.status = 0
        """Status of the response; 0 = none has begun."""

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
    app
        The application behind it.
    authenticate
        Returns who sends a request.
    take
        Takes a request from the token bucket of a key.
    metrics
        Counts requests.
    shutdown
        Once it has begun, responses close their connections.
    hot
        Routes, by method and path, of requests that are sent all the time: without a query and
        without a version to be seen they go past the framework, which costs several times as much
        as the response.
    literal
        Methods of every path without a parameter. Such a path is not a value of a parameter beside
        it: another method on it is 405, not the look-up of something of that name.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        authenticate: Authenticate,
        take: TakeToken,
        metrics: HttpMetrics,
        shutdown: Shutdown,
        hot: Mapping[tuple[str, str], Route],
        literal: Mapping[str, frozenset[str]],
    ) -> None:
        self._app = app
        self._authenticate = authenticate
        self._take = take
        self._metrics = metrics
        self._shutdown = shutdown
        self._hot = hot
        self._literal = literal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if REQUEST_ID.match(given) else str(uuid.uuid4())
        scope.setdefault("state", {})["request_id"] = request_id
        CURRENT_REQUEST.set(request_id)
        clock = asyncio.get_running_loop().time
        begun = clock()
        response = ResponseSender(send, request_id, self._shutdown)
        with self._metrics.running.track_inprogress():
            try:
                response.more += await self._admit(scope, headers)
                self._refuse_method(scope)
                receive = await checked_body(headers, receive, bound_of(scope["path"]))
            except ApiError as error:
                await error_response(error, request_id)(scope, receive, response.send)
            else:
                await self._respond(scope, receive, response, request_id)
            finally:
                seconds = clock() - begun
                self._metrics.completed(scope["method"], route_of(scope), response.status, seconds)
                log_request(scope, response.status, seconds)

    async def _admit(self, scope: Scope, headers: Headers) -> tuple[tuple[str, str], ...]:
        """Let the holder of a key in, and return the headers about its rate.

        Raises
        ------
        ApiError
            401 or 403 when the key is not valid, 429 when it is used too often.
        """
        if not needs_key(scope["path"]):
            return ()
        principal = await self._authenticate(headers.get("authorization"))
        scope["state"]["principal"] = principal
        try:
            return self._take(principal)
        except ApiError:
            self._metrics.limited()
            raise

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

    async def _respond(
        self, scope: Scope, receive: Receive, response: ResponseSender, request_id: str
    ) -> None:
        """Call the application; an unexpected error is logged and becomes 500."""
        try:
            await self._app_of(scope)(scope, receive, response.send)
        except ApiError as error:
            # Of a hot route; the framework handles those of all others itself.
            if response.status:
                raise
            await error_response(error, request_id)(scope, receive, response.send)
        except Exception:
            logger.exception("request %s failed", request_id)
            if response.status:
                raise
            await error_response(FAILED, request_id)(scope, receive, response.send)

    def _app_of(self, scope: Scope) -> ASGIApp:
        """Return the application of a request."""
        found = self._hot.get((scope["method"], scope["path"]))
        if found is None or scope["query_string"] or names_version(scope):
            return self._app
        scope["route"] = found
        return found.app


def names_version(scope: Scope) -> bool:
    """Return whether a request names a version that its response must have seen."""
    return any(name == CONSISTENCY_TOKEN for name, _ in scope["headers"])


def needs_key(path: str) -> bool:
    """Return whether a path is for holders of an admin key alone."""
    if path != "/api" and not path.startswith("/api/"):
        return False
    return not path.startswith(OPEN_PATHS)


def bound_of(path: str) -> int:
    """Return the largest body of a path, in bytes."""
    return MAX_REPORT if path == REPORT_PATH else MAX_BODY


def too_large(bound: int) -> ApiError:
    """413 with the bound."""
    return ApiError(413, "PAYLOAD_TOO_LARGE", f"the body is larger than {bound} bytes; send less")


async def checked_body(headers: Headers, receive: Receive, bound: int) -> Receive:
    """Read the body within its bound and check that it is declared as JSON.

    Parameters
    ----------
    headers
        Headers of the request.
    receive
        The server's receive function.
    bound
        Largest body in bytes.

    Returns
    -------
    Receive
        A receive function that replays the body, then waits for the client to disconnect.

    Raises
    ------
    ApiError
        413 when the body is too large, 415 when it is not declared as JSON.
    """
    declared = headers.get("content-length", "")
    if declared.isdigit() and int(declared) > bound:
        raise too_large(bound)
    if declared in {"", "0"} and "transfer-encoding" not in headers:
        return receive
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > bound:
            raise too_large(bound)
        parts.append(chunk)
        more = message.get("more_body", False)
    if size and media_type(headers.get("content-type", "")) != "application/json":
        raise MEDIA_TYPE
    played = False

    async def replay() -> Message:
        nonlocal played
        if played:
            return await receive()
        played = True
        return {"type": "http.request", "body": b"".join(parts), "more_body": False}

    return replay


def media_type(content_type: str) -> str:
    """Return the media type of a Content-Type header without its parameters."""
    return content_type.partition(";")[0].strip().lower()
