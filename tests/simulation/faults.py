"""What can go wrong with one write: each fault is put in around the API server's handling of it."""

import asyncio
from collections import Counter
from collections.abc import Callable
from enum import StrEnum

from aiohttp import web

from tests.simulation.apiserver.http import ApiServer, Handler, Request
from tests.simulation.apiserver.kinds import Refused
from tests.simulation.apiserver.store import Stored
from tests.simulation.operators import Operators

__all__ = ["Fault", "FaultPlan"]

_LATE = (17.0, 28.0)
"""Seconds that a write is held back: longer than a Lease lasts, so that a successor leads."""
_FROZEN = 30.0
"""Seconds that its sender stands still meanwhile."""

_BLIND_SECONDS = 4.0
"""Seconds in which no status of a Container can be written."""
_DEAF_SECONDS = 4.0
"""Seconds in which nothing can be listed after watches expired."""


class Fault(StrEnum):
    """One fault."""

    NONE = "none"
    """The write is done."""
    BEFORE = "killed before"
    """The operator is killed before the write is done."""
    AFTER = "killed after"
    """The operator is killed after the write was done."""
    LOST = "response lost"
    """The write is done, and the connection breaks."""
    LATE = "late"
    """The sender is frozen, its successor leads, and then the write arrives."""
    CONFLICT = "conflict"
    """Refused: the object was changed by somebody else."""
    BUSY = "too many requests"
    """Refused, with Retry-After."""
    FAILED = "done but failed"
    """The write is done, and the response says that the server failed."""
    HASTY = "next step now"
    """The write is done, and the user does the next step without waiting for this one."""
    BLIND = "next step now, status later"
    """Likewise, and the status of Containers cannot be written for some seconds."""
    DEAF = "watches expire"
    """The write is done, all watches end, and nothing can be listed for some seconds."""


class FaultPlan:
    """Counts the writes of operators, and lets one of them go wrong."""

    def __init__(
        self,
        server: ApiServer,
        operators: Callable[[], Operators],
        *,
        write: int | str,
        fault: Fault,
    ) -> None:
        """Prepare.

        Parameters
        ----------
        operators
            Returns the operators, to kill or freeze the one that should lead.
        write
            Number of the write that goes wrong, or its text: then the first such write; with
            `` #3`` after it the third one.
        """
        self._server, self._world = server, server.world
        self._operators = operators
        self._write, self._fault = write, fault
        self._same: Counter[str] = Counter()
        self.writes = 0
        """Writes so far; renewals of the Lease do not count."""
        self.wrote_at = 0.0
        """When the last of them came."""
        self.what = ""
        """The write that went wrong."""
        self.hasty = False
        """Whether the user does the next step now."""
        self._blind_until = self._deaf_until = 0.0
        self.written: Callable[[str], None] = lambda sender: None
        """Called with the sender of each write when it arrives."""
        self.reached: Callable[[int, Request], Fault | None] = lambda number, request: None
        """Called before each write: returns its fault, None where the plan decides."""
        self._pending: list[Callable[[], None]] = []

    def act(self) -> None:
        """Do to machines what a handler cannot do while it runs on one."""
        while self._pending:
            self._pending.pop()()

    async def __call__(self, request: Request, handle: Handler) -> Stored | web.StreamResponse:
        """Handle a request, as `ApiServer.around` does."""
        if not request.writes and not request.name and self._world.now < self._deaf_until:
            raise Refused(503, "ServiceUnavailable", "this is simulated")
        if not request.writes or request.kind.ref.plural == "leases":
            return await handle(request)
        self.written(request.machine.name)
        self.writes += 1
        self.wrote_at = self._world.now
        decided = self.reached(self.writes, request)
        self._same[request.text] += 1
        numbered = f"{request.text} #{self._same[request.text]}"
        goes_wrong = self._write in (self.writes, request.text, numbered) and not self.what
        fault = decided or (self._fault if goes_wrong else Fault.NONE)
        if fault is not Fault.NONE:
            self.what = f"{request.text} ({fault})"
        if self._world.now < self._blind_until and _is_status_of_container(request):
            raise Refused(500, "InternalError", "this is simulated")
        return await self._with(fault, request, handle)

    async def _with(
        self, fault: Fault, request: Request, handle: Handler
    ) -> Stored | web.StreamResponse:
        if fault is Fault.CONFLICT:
            raise Refused(409, "Conflict", "the object has been modified; this is simulated")
        if fault is Fault.BUSY:
            raise Refused(429, "TooManyRequests", "this is simulated", retry_after=1)
        if fault is Fault.LATE:
            self._pending.append(lambda: self._operators().freeze(_FROZEN))
            await asyncio.sleep(self._world.choices.seconds(*_LATE, "how late a write is"))
        elif fault is Fault.BEFORE:
            await self._killed()
        result = await handle(request)
        if fault is Fault.AFTER:
            await self._killed()
        self._disturb(fault)
        if fault is Fault.FAILED:
            raise Refused(500, "InternalError", "this is simulated")
        if fault is Fault.LOST:
            assert request.http.transport is not None
            request.http.transport.close()
            raise ConnectionResetError
        return result

    def _disturb(self, fault: Fault) -> None:
        """Do what concerns others than the sender of a write that was done."""
        if fault in (Fault.HASTY, Fault.BLIND):
            self.hasty = True
        if fault is Fault.BLIND:
            self._blind_until = self._world.now + _BLIND_SECONDS
        if fault is Fault.DEAF:
            self._deaf_until = self._world.now + _DEAF_SECONDS
            self._server.expire_watches()

    async def _killed(self) -> None:
        """Have the sender killed; nobody waits for the response any more."""
        self._pending.append(lambda: self._operators().kill())
        await asyncio.Event().wait()


def _is_status_of_container(request: Request) -> bool:
    return request.kind.ref.plural == "containers" and request.subresource == "status"
