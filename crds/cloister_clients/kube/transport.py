"""One request to the API server: connection pool, credentials, retries, errors.

Used only by `cloister_clients.kube.client`, which knows the verbs; nothing here knows kinds.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode
from weakref import WeakSet

import aiohttp
import msgspec
from yarl import URL

from cloister_clients.clock import ServerClock
from cloister_clients.kube.config import KubeConfig
from cloister_clients.kube.credentials import CredentialError
from cloister_clients.kube.errors import KubeError, Unavailable, error_from_response
from cloister_clients.tracing.spans import SpanKind, is_on, span
from cloister_crds.backoff import Backoff

__all__ = ["ApiRequest", "ConnectionSockets", "ResponseObserver", "Transport", "TransportLimits"]

ResponseObserver = Callable[[str, int], None]
"""Receives the method and the HTTP status of each request; status 0 if there was no response."""

KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""A peer that vanished without a word is noticed after about a minute, also under a watch."""
_READ_BUFFER = 2**18
"""Bytes that are read ahead of their consumer."""
_HANG_UP = 5.0
"""Seconds that closing waits for its connections; it takes a few iterations of the loop."""
_BACKOFF = Backoff(first=0.1, longest=10.0, jitter=(0.9, 1.3))
"""Delays between attempts of one request."""
_TROUBLE = (aiohttp.ClientError, OSError)
"""What a request without a response fails with; TimeoutError is an OSError."""


@dataclass(frozen=True, slots=True)
class TransportLimits:
    """Bounds of the client."""

    connections: int = 64
    """Connections at the same time, watches included."""
    timeout: float = 30.0
    """Seconds until one request (not a watch) is given up."""
    connect_timeout: float = 5.0
    """Seconds until a connection attempt is given up."""
    attempts: int = 4
    """How often a request is sent at most, where sending it again is safe."""
    backoff: Backoff = _BACKOFF
    """Delays between attempts; its cap and its jitter hold for Retry-After too."""


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """What is sent."""

    method: str
    """HTTP method."""
    path: str
    """Path at the server, quoted."""
    query: Mapping[str, str]
    """Query parameters."""
    body: bytes | None = None
    """Body; None if there is none."""
    content_type: str = "application/json"
    """Media type of the body."""
    accept: str = "application/json"
    """Media type of the response."""
    repeatable: bool = False
    """Whether it may be sent again when it is unknown what became of it."""
    largest: int | None = None
    """Most bytes of the response, or of each line of a stream, which is divided; None means as many
    as there are."""


class Transport:
    """Sends requests to one API server."""

    def __init__(
        self,
        config: KubeConfig,
        *,
        user_agent: str,
        limits: TransportLimits,
        clock: ServerClock,
        observe: ResponseObserver | None = None,
    ) -> None:
        self._config = config
        self._limits = limits
        self._clock = clock
        self._observe = observe or (lambda _method, _status: None)
        self._base = config.server.rstrip("/")
        self._headers = [("User-Agent", user_agent)]
        self._headers += [(name, v) for name, values in config.impersonate.items() for v in values]
        self._opened: aiohttp.ClientSession | None = None
        self._sockets = ConnectionSockets()

    async def aclose(self) -> None:
        """Close all connections."""
        session, self._opened = self._opened, None
        if session is not None:
            await session.close()
            await self._sockets.hang_up()

    @property
    def _session(self) -> aiohttp.ClientSession:
        """The connection pool, made by the first request: it belongs to the loop that runs then."""
        if self._opened is None:
            self._opened = aiohttp.ClientSession(
                connector=self._config.connector(
                    ssl=self._config.tls or True,
                    limit=self._limits.connections,
                    keepalive_timeout=60.0,
                    socket_factory=self._sockets.create,
                ),
                headers=self._headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                proxy=self._config.proxy,
                read_bufsize=_READ_BUFFER,
                middlewares=(_once_only,),
            )
        return self._opened

    async def send(self, request: ApiRequest) -> bytes:
        """Send a request, again where that is safe, and return the body.

        429 and 503 with Retry-After were not acted upon, so every request is repeated after them;
        a connection that could not be made likewise. After a connection that broke only a
        repeatable request is sent again.

        Raises
        ------
        KubeError
            When the server refuses, or cannot be reached.
        """
        if not is_on():
            return await self._attempts(request)
        attributes = {"http.request.method": request.method, "url.path": request.path}
        name = f"{request.method} {resource_of(request.path)}"
        with span(name, SpanKind.CLIENT, inner=True, attributes=attributes) as current:
            try:
                return await self._attempts(request)
            except KubeError as error:
                current.set("http.response.status_code", error.status)
                raise

    async def _attempts(self, request: ApiRequest) -> bytes:
        refreshed = False
        for attempt in range(1, self._limits.attempts + 1):
            try:
                return await self._once(request)
            except KubeError as error:
                if error.status == HTTPStatus.UNAUTHORIZED and not refreshed:
                    refreshed = True
                    self._config.credentials.forget()
                    continue
                if attempt == self._limits.attempts or not may_repeat(error, request):
                    raise
                await asyncio.sleep(self._pause(attempt, error.retry_after))
        raise Unavailable(401, "Unauthorized", "the server refused the credentials")

    @asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a response that is read line by line, without bound on its length in time.

        Raises
        ------
        KubeError
            When the server refuses, cannot be reached, or the connection breaks on the way.
        """
        try:
            async with asyncio.timeout(self._limits.timeout):
                response = await self._open(request)
        except _TROUBLE as error:
            raise unreachable(self._config, error) from error
        try:
            if response.status >= HTTPStatus.BAD_REQUEST:
                if response.status == HTTPStatus.UNAUTHORIZED:
                    self._config.credentials.forget()
                raise refused(response, await response.read())
            yield lines(response, request.largest)
        except _TROUBLE as error:
            raise unreachable(self._config, error) from error
        finally:
            response.close()

    async def _once(self, request: ApiRequest) -> bytes:
        try:
            async with asyncio.timeout(self._limits.timeout), await self._open(request) as response:
                content = await read(response, request.largest)
        except _TROUBLE as error:
            self._observe(request.method, 0)
            raise unreachable(self._config, error) from error
        self._observe(request.method, response.status)
        if response.status < HTTPStatus.MULTIPLE_CHOICES:
            return content
        raise refused(response, content)

    async def _open(self, request: ApiRequest) -> aiohttp.ClientResponse:
        """Send a request and return the response once its headers have arrived."""
        headers = {"Accept": request.accept}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        try:
            token = await self._config.credentials.token()
        except CredentialError as error:
            raise Unavailable(0, "Credentials", str(error)) from error
        if token:
            headers["Authorization"] = f"Bearer {token}"
        query = f"?{urlencode(request.query)}" if request.query else ""
        sent = self._clock.local()
        response = await self._session.request(
            request.method,
            URL(f"{self._base}{request.path}{query}", encoded=True),
            data=request.body,
            headers=headers,
            server_hostname=self._config.server_name,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=self._limits.connect_timeout, sock_read=None
            ),
        )
        self._clock.heard(response.headers.get("Date"), sent=sent)
        return response

    def _pause(self, attempt: int, retry_after: float | None) -> float:
        backoff = self._limits.backoff
        if retry_after is not None:
            return replace(backoff, first=retry_after).jittered(1)
        return backoff.jittered(attempt)


class Unsent(Unavailable):
    """No connection was made: the server has not seen the request."""


class Broken(Unavailable):
    """The connection broke: it is unknown what became of the request."""


def resource_of(path: str) -> str:
    """Return the resource of a path, such as ``pods`` or ``containers/status``, without names."""
    parts = path.strip("/").split("/")
    # /api/VERSION/… and /apis/GROUP/VERSION/…, then namespaces/NAMESPACE where there is one.
    parts = parts[2:] if parts[0] == "api" else parts[3:] if parts[0] == "apis" else parts
    if len(parts) > 2 and parts[0] == "namespaces":  # noqa: PLR2004 - more than a Namespace
        parts = parts[2:]
    return "/".join(parts[::2])


def may_repeat(error: KubeError, request: ApiRequest) -> bool:
    """Return whether a request may be sent again after an error."""
    if isinstance(error, Unsent):
        return True
    if isinstance(error, Broken):
        return request.repeatable
    return (
        error.status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
        and error.retry_after is not None
    )


def unreachable(config: KubeConfig, error: Exception) -> Unavailable:
    """Build the error for a server that did not respond."""
    unsent = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    kind = Unsent if unsent else Broken
    text = str(error) or type(error).__name__
    return kind(0, "Unreachable", f"Kubernetes API server {config.server}: {text}")


def refused(response: aiohttp.ClientResponse, content: bytes) -> KubeError:
    """Build the error for a response that is not a success."""
    return error_from_response(response.status, content, retry_after=retry_after(response))


async def read(response: aiohttp.ClientResponse, largest: int | None) -> bytes:
    """Read a response.

    Raises
    ------
    KubeError
        When it is too large.
    """
    if largest is None:
        return await response.read()
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > largest:
            text = f"the response has more than {largest} bytes, the most that are read"
            raise KubeError(0, "TooLarge", text)
    return bytes(content)


def retry_after(response: aiohttp.ClientResponse) -> float | None:
    """Return the Retry-After header in seconds; None if absent or a date (RFC 9110, 10.2.3)."""
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isdigit() else None


async def lines(
    response: aiohttp.ClientResponse, largest: int | None = None
) -> AsyncIterator[bytes]:
    """Split a response into its lines, and lines beyond a length into several."""
    rest = bytearray()
    async for chunk in response.content.iter_any():
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            rest += chunk[start:end]
            for each in divided(rest, largest):
                yield each
            rest.clear()
            start = end + 1
        rest += chunk[start:]
        while largest is not None and len(rest) > largest:
            yield bytes(rest[:largest])
            del rest[:largest]
    if rest:
        yield bytes(rest)


def divided(line: bytearray, largest: int | None) -> Iterator[bytes]:
    """Yield a line in parts of at most so many bytes; None means whole."""
    step = largest or len(line) or 1
    for start in range(0, len(line), step):
        yield bytes(line[start : start + step])


async def _once_only(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Keep the library from sending a PUT again: only this class decides that.

    It repeats after two errors; as their common base they only say what happened.
    """
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientConnectionError(str(error)) from error


class ConnectionSockets:
    """The sockets of a connection pool, for connections that outlive it.

    A TLS connection that was given up waits for the server's farewell, longer than its loop may
    run; nobody but the garbage collector would close its socket.
    """

    def __init__(self) -> None:
        self._sockets: WeakSet[socket.socket] = WeakSet()

    def create(self, found: aiohttp.AddrInfoType) -> socket.socket:
        """Create the socket of a connection; the pool's ``socket_factory``."""
        family, kind, protocol, _, _ = found
        made = socket.socket(family, kind, protocol)
        for option in KEEPALIVE:
            made.setsockopt(*option)
        self._sockets.add(made)
        return made

    async def hang_up(self) -> None:
        """Close what is left, and wait until the loop has let its transports finish."""
        left = [each for each in self._sockets if each.fileno() >= 0]
        for each in left:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        with suppress(TimeoutError):
            async with asyncio.timeout(_HANG_UP):
                while any(each.fileno() >= 0 for each in left):  # noqa: ASYNC110 - no event tells
                    await asyncio.sleep(0)


def encode(body: Any) -> bytes:
    """Encode an object as JSON."""
    return msgspec.json.encode(body)
