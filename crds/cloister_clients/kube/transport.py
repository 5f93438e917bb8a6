"""One request to the API server: connection pool, credentials, retries, errors.

Used by `cloister_clients.kube.client` alone, which knows the verbs; nothing here knows kinds.
"""

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from cloister_clients.kube.config import KubeConfig
from cloister_clients.kube.credentials import CredentialError
from cloister_clients.kube.errors import KubeError, Unavailable, error_from_response

__all__ = ["Limits", "Request", "Transport"]

KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""A peer that vanished without a word is noticed after about a minute, also under a watch."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the client."""

    connections: int = 64
    """Connections at the same time, watches included."""
    timeout: float = 30.0
    """Seconds until one request (not a watch) is given up."""
    connect_timeout: float = 5.0
    """Seconds until a connection attempt is given up."""
    attempts: int = 4
    """How often a request is sent at most, where sending it again is safe."""
    first_pause: float = 0.1
    """Seconds of the first pause between attempts; doubled each time, with jitter."""
    longest_pause: float = 10.0
    """Seconds that a pause lasts at most, whatever Retry-After says."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent."""

    method: str
    """HTTP method."""
    path: str
    """Path at the server, quoted."""
    query: Mapping[str, str]
    """Query parameters."""
    body: bytes | None = None
    """Body; None = none."""
    content_type: str = "application/json"
    """Media type of the body."""
    accept: str = "application/json"
    """Media type of the answer."""
    repeatable: bool = False
    """Whether it may be sent again when it is unknown what became of it."""


class Transport:
    """Sends requests to one API server."""

    def __init__(self, config: KubeConfig, *, user_agent: str, limits: Limits) -> None:
        self._config = config
        self._limits = limits
        headers = [("user-agent", user_agent)]
        headers += [(name, v) for name, values in config.impersonate.items() for v in values]
        self._http = httpx.AsyncClient(
            base_url=config.server,
            headers=headers,
            transport=httpx.AsyncHTTPTransport(
                verify=config.tls or True,
                proxy=config.proxy,
                socket_options=KEEPALIVE,
                limits=httpx.Limits(
                    max_connections=limits.connections,
                    max_keepalive_connections=limits.connections,
                    keepalive_expiry=60.0,
                ),
            ),
            timeout=httpx.Timeout(limits.timeout, connect=limits.connect_timeout),
            trust_env=False,
            follow_redirects=False,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def send(self, request: Request) -> bytes:
        """Send a request, again where that is safe, and answer the body.

        429 and 503 with Retry-After were not acted upon, so every request is repeated after them;
        a connection that could not be made likewise. After a connection that broke only a
        repeatable request is sent again.

        Raises
        ------
        KubeError
            When the server refuses, or cannot be reached.
        """
        refreshed = False
        for attempt in range(1, self._limits.attempts + 1):
            try:
                return await self._once(request)
            except KubeError as error:
                if error.status == httpx.codes.UNAUTHORIZED and not refreshed:
                    refreshed = True
                    self._config.credentials.forget()
                    continue
                if attempt == self._limits.attempts or not may_repeat(error, request):
                    raise
                await asyncio.sleep(self._pause(attempt, error.retry_after))
        raise Unavailable(401, "Unauthorized", "the server refused the credentials")

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a response that is read line by line, without bound on its length in time.

        Raises
        ------
        KubeError
            When the server refuses, cannot be reached, or the connection breaks on the way.
        """
        http_request = await self._build(request)
        http_request.extensions["timeout"]["read"] = None
        try:
            response = await self._http.send(http_request, stream=True)
        except httpx.TransportError as error:
            raise unreachable(self._config, error) from error
        try:
            if response.status_code >= httpx.codes.BAD_REQUEST:
                if response.status_code == httpx.codes.UNAUTHORIZED:
                    self._config.credentials.forget()
                content = await response.aread()
                raise error_from_response(
                    response.status_code, content, retry_after=retry_after(response)
                )
            yield lines(response)
        except httpx.TransportError as error:
            raise unreachable(self._config, error) from error
        finally:
            await response.aclose()

    async def _once(self, request: Request) -> bytes:
        try:
            async with asyncio.timeout(self._limits.timeout):
                response = await self._http.send(await self._build(request))
        except (httpx.TransportError, TimeoutError) as error:
            raise unreachable(self._config, error) from error
        if response.is_success:
            return response.content
        raise error_from_response(
            response.status_code, response.content, retry_after=retry_after(response)
        )

    async def _build(self, request: Request) -> httpx.Request:
        headers = {"accept": request.accept}
        if request.body is not None:
            headers["content-type"] = request.content_type
        try:
            token = await self._config.credentials.token()
        except CredentialError as error:
            raise Unavailable(0, "Credentials", str(error)) from error
        if token:
            headers["authorization"] = f"Bearer {token}"
        extensions: dict[str, Any] = {}
        if self._config.server_name:
            extensions["sni_hostname"] = self._config.server_name
        return self._http.build_request(
            request.method,
            request.path,
            params=dict(request.query),
            content=request.body,
            headers=headers,
            extensions=extensions,
        )

    def _pause(self, attempt: int, asked: float | None) -> float:
        pause = asked if asked is not None else self._limits.first_pause * 2 ** (attempt - 1)
        return min(pause, self._limits.longest_pause) * random.uniform(0.9, 1.3)


class Unsent(Unavailable):
    """No connection was made: the server has not seen the request."""


class Broken(Unavailable):
    """The connection broke: it is unknown what became of the request."""


def may_repeat(error: KubeError, request: Request) -> bool:
    """Answer whether a request may be sent again after an error."""
    if isinstance(error, Unsent):
        return True
    if isinstance(error, Broken):
        return request.repeatable
    return (
        error.status in {httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE}
        and error.retry_after is not None
    )


def unreachable(config: KubeConfig, error: Exception) -> Unavailable:
    """Make the error of a server that gave no answer."""
    unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    kind = Unsent if unsent else Broken
    text = str(error) or type(error).__name__
    return kind(0, "Unreachable", f"Kubernetes API server {config.server}: {text}")


def retry_after(response: httpx.Response) -> float | None:
    """Answer the Retry-After header in seconds; None = none, or a date (RFC 9110, 10.2.3)."""
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdigit() else None


async def lines(response: httpx.Response) -> AsyncIterator[bytes]:
    """Split a response into its lines."""
    rest = bytearray()
    async for chunk in response.aiter_bytes():
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            rest += chunk[start:end]
            if rest:
                yield bytes(rest)
            rest.clear()
            start = end + 1
        rest += chunk[start:]
    if rest:
        yield bytes(rest)


def encode(body: Any) -> bytes:
    """Encode an object as JSON."""
    return msgspec.json.encode(body)
