"""Who sends a request, told from its headers alone: before a byte of its body is read.

Below ``/api`` that is the holder of an admin key. A few open paths have callers of other kinds,
each with its own proof in the headers: the form of a signature, a reporter, an enclave's token.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from cloister_api.auth.authenticator import Principal
from cloister_api.errors import ApiError, unavailable
from cloister_api.http.bodies import MAX_BODY, BodyLane, declared_size, replayed
from cloister_api.settings import LimitSettings

__all__ = [
    "ARRIVED",
    "DOOR",
    "SAFE_METHODS",
    "Callers",
    "Door",
    "OpenPath",
    "is_awaited",
    "needs_key",
]

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
    """Judges the headers before the body is read, and returns the caller or raises ApiError; None =
    the proof is in the body."""
    most_bytes: int = MAX_BODY
    """Largest body in bytes."""


class Callers:
    """The requests and bodies of all callers that are in progress.

    Parameters
    ----------
    limits
        The administrator's settings.
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
        """Return what is known of an open path; None = it takes no body."""
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
        headers
            Headers of the request.
        receive
            The server's receive function.
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
    """Return whether the body of a request has to be read, because it has not arrived yet.

    Raises
    ------
    ApiError
        As `declared_size`.
    """
    size = declared_size(headers, bound)
    return size is None or (size > 0 and ARRIVED not in scope)


def needs_key(path: str) -> bool:
    """Return whether a path is for holders of an admin key alone."""
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
