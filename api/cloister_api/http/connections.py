"""Connections before and between requests: bounded in number, in time and in the size of headers.

Most connections wait: for their first request, for the rest of its headers, for another one, or for
a client that does not take its response. Those that serve a request are bounded by what `Callers`
admits. At the limit the connection that has waited longest gives way to a new one, so that
connections which are held open on purpose keep nobody out.
"""

import asyncio
import uuid
from typing import Any

from typing_extensions import override
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from cloister_api.errors import ApiError, unavailable
from cloister_api.http.metrics import HttpMetrics
from cloister_api.http.middleware import ARRIVED
from cloister_api.schemas.forms import ErrorResponse
from cloister_api.settings import LimitSettings
from cloister_api.wire import encode

MAX_HEADERS = 64 * 1024
"""Largest request line and headers in bytes."""
MOST_PIPELINED = 64
"""Requests that a connection may send ahead of their responses."""

FULL = unavailable("the facade has as many connections as it may; try again", retry_after=1)
INVALID = ApiError(400, "BAD_REQUEST", "this is not an HTTP request")
LARGE_HEADERS = ApiError(
    431, "HEADERS_TOO_LARGE", f"the headers are larger than {MAX_HEADERS} bytes; send fewer"
)


class Connections:
    """The open connections of a process."""

    def __init__(self, limits: LimitSettings, metrics: HttpMetrics) -> None:
        self._most = limits.connections
        self._seconds = limits.header_seconds
        self._metrics = metrics
        self._open: set[BoundedProtocol] = set()
        self._waiting: dict[BoundedProtocol, float] = {}
        # As of the last sweep or the newest connection: near enough, and asked for less often.
        self._now = 0.0

    def opened(self, connection: "BoundedProtocol") -> None:
        """Add a connection; at the limit one that waits gives way, or this one is refused."""
        if len(self._open) >= self._most:
            oldest = next(iter(self._waiting), None)
            if oldest is None:
                self._metrics.dropped("full")
                connection.refuse(FULL)
                return
            self._metrics.dropped("displaced")
            self.closed(oldest)
            oldest.abort()
        self._open.add(connection)
        self._now = connection.loop.time()
        self.waits(connection)

    def waits(self, connection: "BoundedProtocol") -> None:
        """Note that a connection waits for its next request from now on."""
        if connection in self._open:
            self._waiting[connection] = self._now

    def serves(self, connection: "BoundedProtocol") -> None:
        """Note that the headers of a request are complete."""
        self._waiting.pop(connection, None)

    def closed(self, connection: "BoundedProtocol") -> None:
        """Forget a connection."""
        self._open.discard(connection)
        self._waiting.pop(connection, None)

    def end_overdue(self, now: float) -> None:
        """End connections that have waited too long; called several times a second.

        Parameters
        ----------
        now
            Time of the event loop in seconds.
        """
        self._now = now
        while self._waiting:
            connection, since = next(iter(self._waiting.items()))
            if now - since < self._seconds:
                return
            if connection.takes_response():
                del self._waiting[connection]
                self._waiting[connection] = now
                continue
            self._metrics.dropped("slow")
            self.closed(connection)
            connection.expire(self._seconds)


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with bounds before a request reaches the application."""

    def __init__(
        self,
        table: Connections,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._table = table
        self._begun = False
        self._received = 0
        self._unsent_before: int | None = None

    @override
    def connection_made(self, transport: Any) -> None:
        """Count the connection."""
        super().connection_made(transport)
        self._table.opened(self)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._table.closed(self)
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        """Parse data; headers that never end are refused while they arrive."""
        self._received = self._received + len(data) if self._begun else len(data)
        super().data_received(data)
        if self._begun and self._received > MAX_HEADERS:
            self.refuse(LARGE_HEADERS)

    @override
    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._begun = True

    @override
    def on_headers_complete(self) -> None:
        """Serve a request, unless its headers are too large.

        Raises
        ------
        ValueError
            When it is not served; the parser stops then.
        """
        self._begun = False
        self._unsent_before = None
        if self._received > MAX_HEADERS and self._size() > MAX_HEADERS:
            self.refuse(LARGE_HEADERS)
            raise ValueError("the headers are too large")
        if len(self.pipeline) >= MOST_PIPELINED:
            self.abort()
            raise ValueError("too many requests are sent ahead")
        self._table.serves(self)
        super().on_headers_complete()

    def _size(self) -> int:
        """Return the bytes of the request line and the headers."""
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    @override
    def on_message_complete(self) -> None:
        """Note that the whole request has arrived."""
        self.scope[ARRIVED] = True  # type: ignore[literal-required]  # a key of ours, not of ASGI
        super().on_message_complete()

    @override
    def on_response_complete(self) -> None:
        """Wait for the next request, unless it is there already."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self._table.waits(self)

    @override
    def pause_writing(self) -> None:
        """Wait for the client to take what is sent."""
        super().pause_writing()
        self._table.waits(self)

    @override
    def resume_writing(self) -> None:
        """Go on with the request whose response the client takes."""
        super().resume_writing()
        if not self.cycle.response_complete:
            self._unsent_before = None
            self._table.serves(self)

    @override
    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP."""
        self.refuse(INVALID)

    @property
    def _unsent(self) -> int:
        """Bytes of responses that the client has not taken."""
        return self.transport.get_write_buffer_size()

    def takes_response(self) -> bool:
        """Return whether the client has taken some of its response since it was asked last."""
        before, self._unsent_before = self._unsent_before, self._unsent
        return self._unsent_before > 0 and (before is None or self._unsent_before < before)

    def refuse(self, error: ApiError) -> None:
        """Send an error without the application, and close.

        Nothing is sent where it would be taken for the response to an earlier request.
        """
        if self.transport.is_closing():
            return
        latest: RequestResponseCycle | None = self.cycle
        if (latest is None or latest.response_complete) and not self._unsent:
            self.transport.write(response_of(error))
            self.transport.close()
        else:
            self.abort()

    def expire(self, seconds: float) -> None:
        """End a connection that has waited too long; a client in the middle of headers is told."""
        if self._begun and not self.transport.is_closing():
            self.refuse(too_slow(seconds))
        else:
            self.abort()

    def abort(self) -> None:
        """End the connection immediately, whatever its client has not taken."""
        self.transport.abort()


def too_slow(seconds: float) -> ApiError:
    """408 with the deadline."""
    return ApiError(
        408, "REQUEST_TIMEOUT", f"no request arrived within {seconds:g} seconds; send it again"
    )


def response_of(error: ApiError) -> bytes:
    """Return an error as it is sent without the application."""
    request_id = str(uuid.uuid4())
    body = encode(ErrorResponse(error=error.message, code=error.code, request_id=request_id))
    headers = [
        f"x-request-id: {request_id}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        "connection: close",
    ]
    if error.retry_after is not None:
        headers.append(f"retry-after: {error.retry_after}")
    return STATUS_LINE[error.status] + "\r\n".join([*headers, "", ""]).encode() + body
