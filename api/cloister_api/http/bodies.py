"""Bodies of requests while they arrive: bounded in bytes, in time, and in what they hold together.

Each kind of caller has a lane of its own, so that nobody's bodies stand in the way of others'. In a
full lane the body that has been arriving longest gives way: an honest one arrives quickly, and one
that is held back on purpose does not keep newcomers out.
"""

import asyncio
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.types import Message, Receive

from cloister_api.errors import ApiError

MAX_BODY = 1024 * 1024
"""Largest body in bytes."""
MAX_REPORT = 4 * MAX_BODY
"""Largest report of usage in bytes: a thousand events with all their attributes."""
MEDIA_TYPE = ApiError(
    415, "UNSUPPORTED_MEDIA_TYPE", "send the body with the header Content-Type: application/json"
)
MOST_PIECES = 256
"""Pieces of a body that are kept apart."""
CUT_OFF = ApiError(400, "BAD_REQUEST", "the connection ended before the body did; send it again")
CLOSE = (("connection", "close"),)
"""Headers of a refusal after which no more of the body must be sent."""
CROWDED = ApiError(
    503,
    "UNAVAILABLE",
    "too many bodies are arriving, and this one took longest; send it again",
    retry_after=1,
    headers=CLOSE,
)


@dataclass(slots=True, eq=False)
class ArrivingBody:
    """A body that is not complete."""

    timer: asyncio.Timeout
    """Ends it at its deadline."""
    pieces: list[bytes] = field(default_factory=list)
    """What has arrived."""
    size: int = 0
    """Its bytes."""
    displaced: bool = False
    """Whether it gave way to others."""

    def add(self, piece: bytes) -> None:
        """Add what has arrived; small pieces, which cost more than their bytes, are joined."""
        self.pieces.append(piece)
        self.size += len(piece)
        if len(self.pieces) >= MOST_PIECES:
            self.pieces = [b"".join(self.pieces)]


class BodyLane:
    """The bodies that arrive from one kind of caller.

    Parameters
    ----------
    most_bytes
        Bytes that they may hold together.
    most
        How many may arrive concurrently.
    seconds
        How long one may take.
    """

    def __init__(self, *, most_bytes: int, most: int, seconds: float) -> None:
        self._most_bytes = most_bytes
        self._most = most
        self._seconds = seconds
        self._arriving: dict[ArrivingBody, None] = {}
        self._bytes = 0

    @property
    def idle(self) -> bool:
        """Whether no body arrives."""
        return not self._arriving

    async def read(self, headers: Headers, receive: Receive, bound: int) -> Message:
        """Read a body, and return it as one message.

        Parameters
        ----------
        bound
            Largest body in bytes.

        Raises
        ------
        ApiError
            400 when it was cut off, 408 when it takes too long, 413 when it is too large, 415 when
            it is not declared as JSON, 503 when it gave way to others.
        """
        message = await self._whole(receive, bound)
        if message["body"]:
            check_media_type(headers)
        return message

    async def _whole(self, receive: Receive, bound: int) -> Message:
        """Collect the pieces of a body."""
        timer = asyncio.timeout(self._seconds)
        body = ArrivingBody(timer)
        self._arriving[body] = None
        try:
            async with timer:
                while await self._piece(body, receive, bound):
                    pass
        except TimeoutError as error:
            raise CROWDED if body.displaced else too_slow(self._seconds) from error
        finally:
            self._leave(body)
        return {"type": "http.request", "body": b"".join(body.pieces), "more_body": False}

    async def _piece(self, body: ArrivingBody, receive: Receive, bound: int) -> bool:
        """Add the next piece of a body, and return whether more are expected."""
        if len(self._arriving) > self._most:
            self._displace_oldest()
        message = await receive()
        if message["type"] == "http.disconnect":
            raise CUT_OFF
        piece = message.get("body", b"")
        if body.size + len(piece) > bound:
            raise too_large(bound)
        body.add(piece)
        self._bytes += len(piece)
        more: bool = message.get("more_body", False)
        while more and self._bytes > self._most_bytes:
            self._displace_oldest()
        return more

    def _displace_oldest(self) -> None:
        """End the body that has been arriving longest."""
        oldest = next(iter(self._arriving))
        oldest.displaced = True
        oldest.timer.reschedule(asyncio.get_running_loop().time())
        self._leave(oldest)
        oldest.pieces.clear()

    def _leave(self, body: ArrivingBody) -> None:
        """Count a body no longer."""
        if body in self._arriving:
            del self._arriving[body]
            self._bytes -= body.size


def declared_size(headers: Headers, bound: int) -> int | None:
    """Return the size of a body that its headers declare, in bytes; None if they do not.

    Raises
    ------
    ApiError
        413 when it is larger than the bound, 415 when it is not declared as JSON.
    """
    declared = headers.get("content-length", "")
    size = int(declared) if declared.isdecimal() else 0
    if size > bound:
        raise too_large(bound)
    if "transfer-encoding" in headers:
        return None
    if size:
        check_media_type(headers)
    return size


def check_media_type(headers: Headers) -> None:
    """Refuse a body that is not declared as JSON.

    Raises
    ------
    ApiError
        415.
    """
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise MEDIA_TYPE


def replayed(body: Message, receive: Receive) -> Receive:
    """Return a receive function that gives a body, then waits for the client to disconnect."""
    played = False

    async def replay() -> Message:
        nonlocal played
        if played:
            return await receive()
        played = True
        return body

    return replay


def too_large(bound: int) -> ApiError:
    """413 with the bound."""
    return ApiError(413, "PAYLOAD_TOO_LARGE", f"the body is larger than {bound} bytes; send less")


def too_slow(seconds: float) -> ApiError:
    """408 with the deadline."""
    return ApiError(
        408,
        "REQUEST_TIMEOUT",
        f"the body did not arrive within {seconds:g} seconds; send it again",
        headers=CLOSE,
    )
