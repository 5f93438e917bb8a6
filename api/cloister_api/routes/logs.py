"""/api/containers/:id/logs: what debug containers write, as a list or as it is written."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Query, Request, Response
from pydantic import BeforeValidator
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from cloister_api.auth.authenticator import Principal
from cloister_api.auth.roles import RIGHTS, RoleRight
from cloister_api.cache import ClusterCache
from cloister_api.http.middleware import Shutdown
from cloister_api.routes.dependencies import StrictRoute, context_of, principal_of
from cloister_api.routes.parameters import ConsistencyToken, ContainerId, responses
from cloister_api.schemas.keys import moment
from cloister_api.schemas.log_responses import ContainerLogsResponse
from cloister_api.services.containers.logs import (
    MAX_TAIL,
    ContainerLogs,
    LogRange,
    LogSource,
    line_of,
)
from cloister_api.wire import JsonResponse
from cloister_clients.kube import KubeError
from cloister_crds.kinds.organization import Role

router = APIRouter(prefix="/api/containers", tags=["containers"], route_class=StrictRoute)

EVENTS = "text/event-stream"
HEADERS = (
    (b"content-type", EVENTS.encode()),
    (b"cache-control", b"no-store"),
    # Proxies that buffer responses would hold lines back.
    (b"x-accel-buffering", b"no"),
)
BEAT_SECONDS = 15.0
"""How often a stream says that it lives, and whether its reader may still read is judged."""
STREAM_SECONDS = 600.0
"""Longest life of a stream; its reader opens another one from the last line on."""
TAIL = 200
Container = Annotated[
    str | None,
    Query(max_length=63, description="Container of the file; left out: the first one."),
]
Tail = Annotated[int, Query(ge=0, le=MAX_TAIL, description="Lines from the end at most.")]
Since = Annotated[
    datetime | None,
    BeforeValidator(lambda given: None if given is None else moment(given)),
    Query(description="Only lines from this time on, RFC 3339."),
]
Follow = Annotated[
    Literal["true", "false"],
    Query(description="`true`: server-sent events, one for each line, as it is written."),
]
DECLARED = responses(400, 404, 409)
DECLARED[200]["content"] = {EVENTS: {"schema": {"type": "string"}}}


@router.get("/{container_id}/logs", responses=DECLARED)
async def list_logs(
    request: Request,
    container_id: ContainerId,
    container: Container = None,
    tail: Tail = TAIL,
    since: Since = None,
    follow: Follow = "false",
    token: ConsistencyToken = None,
) -> JsonResponse[ContainerLogsResponse] | Response:
    """Return what a debug container wrote; production containers have no logs here."""
    context, principal = context_of(request), principal_of(request)
    held = await context.reader.get(principal, container_id, token)
    source = await context.logs.source(held, LogRange(container, tail, since))
    if follow == "false":
        return JsonResponse(await context.logs.read(source))
    return LogStream(
        context.logs,
        source,
        principal.slug,
        may_read=lambda: is_reader(context.cache, principal),
        shutdown=request.app.state.shutdown,
    )


def is_reader(cache: ClusterCache, principal: Principal) -> bool:
    """Return whether somebody may still read, as far as the copy of their Organization shows."""
    found = cache.organizations.get(principal.slug)
    if found is None or found.value.identifier != principal.organization_id:
        return False
    roles = {each.role for each in found.value.spec.members if each.user == principal.user}
    if principal.key_id:
        return Role.ADMIN in roles
    return any(RoleRight.READ in RIGHTS[role] for role in roles)


class LogStream(Response):
    """A response of one event for each line, until the log, its reader or the process ends.

    Parameters
    ----------
    may_read
        Returns whether the reader may still read.
    """

    def __init__(
        self,
        logs: ContainerLogs,
        source: LogSource,
        organization: str,
        *,
        may_read: Callable[[], bool],
        shutdown: Shutdown,
    ) -> None:
        super().__init__()
        self._logs = logs
        self._source = source
        self._organization = organization
        self._may_read = may_read
        self._shutdown = shutdown

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events.

        Raises
        ------
        ApiError
            As `ContainerLogs.follow`, before anything is sent.
        """
        del scope
        gone = asyncio.ensure_future(_disconnected(receive))

        def stop() -> None:
            gone.cancel()

        try:
            async with self._logs.follow(self._organization, self._source) as lines:
                self._shutdown.listeners.append(stop)
                await send({"type": "http.response.start", "status": 200, "headers": [*HEADERS]})
                with suppress(KubeError):
                    await self._run(lines, gone, send)
                await send(event(b"end", b"."))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()
            with suppress(ValueError):
                self._shutdown.listeners.remove(stop)

    async def _run(
        self, lines: AsyncIterator[bytes], gone: "asyncio.Future[Any]", send: Send
    ) -> None:
        """Send lines until there are no more, or nobody may read them any more."""
        clock = asyncio.get_running_loop().time
        end = clock() + STREAM_SECONDS
        following: asyncio.Future[Any] = asyncio.ensure_future(_next(lines))
        try:
            while not gone.done() and clock() < end and self._may_read():
                done, _ = await asyncio.wait(
                    {following, gone}, timeout=BEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if following in done:
                    line = following.result()
                    if line is None:
                        return
                    record = line_of(line.decode(errors="replace"))
                    await send(event(b"line", msgspec.json.encode(record.model_dump(mode="json"))))
                    following = asyncio.ensure_future(_next(lines))
                elif not done:
                    await send(event(b"alive", b"."))
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError, KubeError):
                await following


async def _next(lines: AsyncIterator[bytes]) -> bytes | None:
    """Return the next line; None if there is none."""
    return await anext(lines, None)


def event(name: bytes, data: bytes) -> dict[str, object]:
    """Return an event as a part of the response."""
    body = b"event: " + name + b"\ndata: " + data + b"\n\n"
    return {"type": "http.response.body", "body": body, "more_body": True}


async def _disconnected(receive: Receive) -> None:
    """Wait until the reader is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
