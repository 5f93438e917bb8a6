"""What the containers of a debug enclave write.

Production enclaves have no logs here: their contents are of no concern to the cluster, whose
operator reads whatever passes through its API server.
"""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime

from cloister_api.cache import CachedContainer
from cloister_api.errors import ApiError, bad_request, conflict, unavailable
from cloister_api.records.container_status import candidate_of
from cloister_api.schemas.log_responses import ContainerLogsResponse, LogLineResponse
from cloister_api.services.infrastructure import Infrastructure
from cloister_clients.clock import utc_text
from cloister_clients.kube import NotFound
from cloister_clients.kube.errors import BadRequest
from cloister_clients.kube.kinds import POD, of
from cloister_crds.config import object_name
from cloister_crds.kinds import Enclave

MAX_TAIL = 1000
"""Most lines from the end."""
MAX_BYTES = 256 * 1024
"""Most bytes of a response."""
MAX_LINE = 16 * 1024
"""Bytes beyond which a line that is followed is divided."""
FOLLOWED = 16
"""Logs that are followed at a time, each by a connection to the API server."""
FOLLOWED_EACH = 4
"""Of these of one organization."""
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
PRODUCTION = (
    "logs are only shown of debug containers: the operator of the cluster could read them too. "
    "Have the container send them from inside, over a network that its file allows, or deploy it "
    "as a debug container"
)
NOT_RUNNING = "no enclave of the container runs; start it"
NOT_STARTED = "the container has not started yet; try again in a moment"


@dataclass(frozen=True, slots=True)
class LogRange:
    """Which lines of which container."""

    container: str | None
    """Name in the file; None means the first one of the file."""
    tail: int
    """Lines from the end, 0 to `MAX_TAIL`."""
    since: datetime | None
    """Only lines from this time on; None means all."""


@dataclass(frozen=True, slots=True)
class LogSource:
    """The log of a container of an enclave."""

    enclave: str
    """Name of the enclave."""
    container: str
    """Name of the container in the file."""
    path: str
    """Path at the API server."""
    query: dict[str, str]
    """Query of it."""


class ContainerLogs:
    """Reads and follows logs."""

    def __init__(self, base: Infrastructure) -> None:
        self._client = base.client
        self._followed: Counter[str] = Counter()

    async def source(self, held: CachedContainer, wanted: LogRange) -> LogSource:
        """Return the log of a container: of the enclave that serves, else of the one on its way.

        Raises
        ------
        ApiError
            409 for a production container and where nothing runs, 400 for a name that is not in
            the file.
        KubeError
            When the cluster does not respond.
        """
        meta, status = held.container.metadata, held.container.status
        if not held.container.spec.debug:
            raise conflict(PRODUCTION)
        name = status.active_enclave or candidate_of(status)
        if not name:
            raise conflict(NOT_RUNNING)
        try:
            enclave = Enclave.read(await self._client.get(of(Enclave), name, meta.namespace))
        except NotFound as gone:
            raise conflict(NOT_RUNNING) from gone
        # The spec may be another one than that of what still serves.
        if not enclave.spec.debug or enclave.spec.container.uid != meta.uid:
            raise conflict(PRODUCTION)
        known = enclave.spec.summary.containers
        container = wanted.container or next(iter(known), "")
        if container not in known:
            listed = ", ".join(known)
            raise bad_request(
                "container", f"container: the file has no container of this name; it has {listed}"
            )
        query = {
            "container": object_name(container),
            "tailLines": str(wanted.tail),
            "timestamps": "true",
        }
        if wanted.since is not None:
            query["sinceTime"] = utc_text(wanted.since)
        path = f"{POD.path(meta.namespace, name)}/log"
        return LogSource(name, container, path, query)

    async def read(self, source: LogSource) -> ContainerLogsResponse:
        """Return the last lines of a log.

        Raises
        ------
        ApiError
            409 before the container has started, and once its Pod is gone.
        KubeError
            When the cluster does not respond.
        """
        query = {**source.query, "limitBytes": str(MAX_BYTES)}
        with told_apart():
            # Bytes that are not UTF-8 take more once they are replaced.
            text = await self._client.text(source.path, query, largest=MAX_BYTES)
        lines = await asyncio.to_thread(lambda: [line_of(each) for each in text.splitlines()])
        return ContainerLogsResponse(
            enclave=source.enclave,
            container=source.container,
            lines=lines,
            truncated=len(text.encode()) >= MAX_BYTES,
        )

    @asynccontextmanager
    async def follow(
        self, organization: str, source: LogSource
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a log whose lines are read as they are written.

        Raises
        ------
        ApiError
            429 and 503 when too many are followed; as `read`.
        KubeError
            When the cluster does not respond, or the connection breaks.
        """
        with self._slot(organization):
            query = {**source.query, "follow": "true"}
            with told_apart():
                opened = self._client.text_lines(source.path, query, longest=MAX_LINE)
                lines = await opened.__aenter__()
            try:
                yield lines
            finally:
                await opened.__aexit__(None, None, None)

    @contextmanager
    def _slot(self, organization: str) -> Iterator[None]:
        """Count a log that is followed.

        Raises
        ------
        ApiError
            429 when the organization, 503 when all of them follow too many.
        """
        if self._followed[organization] >= FOLLOWED_EACH:
            raise ApiError(
                429,
                "RATE_LIMITED",
                f"the organization follows {FOLLOWED_EACH} logs already; end one of them",
                retry_after=1,
            )
        if self._followed.total() >= FOLLOWED:
            raise unavailable("too many logs are followed at present; try again")
        self._followed[organization] += 1
        try:
            yield
        finally:
            self._followed[organization] -= 1
            self._followed += Counter()


@contextmanager
def told_apart() -> Iterator[None]:
    """Translate what the server says of a container that has no log.

    Raises
    ------
    ApiError
        409.
    """
    try:
        yield
    except BadRequest as error:
        raise conflict(NOT_STARTED) from error
    except NotFound as error:
        raise conflict(NOT_RUNNING) from error


def line_of(written: str) -> LogLineResponse:
    """Return a line of which the server wrote when it was written."""
    stamp, _, text = written.partition(" ")
    if STAMP.fullmatch(stamp):
        return LogLineResponse(at=stamp, text=text)
    return LogLineResponse(text=written)
