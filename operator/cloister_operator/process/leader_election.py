"""Leader election: which of several replicas works, by a Lease, in a thread of its own.

The thread has its own event loop and client, so that a busy or stuck main loop cannot keep it from
renewing, and no delayed renewal goes unnoticed. Rules as in client-go's leader election
(Kubernetes, "Leases"): a holder that was silent for the duration, by the observer's own clock, is
replaced; a holder that could not renew in time gives up on its own.
"""

import asyncio
import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from cloister_clients.clock import Clock, monotonic, utc_now
from cloister_clients.kube import AlreadyExists, Conflict, KubeClient, KubeError, NotFound
from cloister_clients.kube.kinds import LEASE
from cloister_operator.settings import LeaseSettings

logger = logging.getLogger(__name__)

_MICRO = "%Y-%m-%dT%H:%M:%S.%fZ"
"""MicroTime of the API."""


def new_identity() -> str:
    """Make a unique name for this process, with host and process id for people."""
    return f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"


@dataclass(slots=True)
class Election:
    """One candidate; no thread, no loop: `attempt` tries once to take or renew the Lease."""

    client: KubeClient
    """Client for the Lease."""
    settings: LeaseSettings
    """Times and name."""
    namespace: str
    """Namespace of the Lease."""
    identity: str
    """Name of this candidate."""
    clock: Clock = utc_now
    """Wall clock, for what is written into the Lease."""
    monotonic: Callable[[], float] = monotonic
    """Clock that durations are measured by."""
    renewed_at: float | None = None
    """When the Lease was last known to be ours; None if it is not."""
    _seen: tuple[str, str] = ("", "")
    _seen_at: float = field(default=0.0)
    _expires_at: float = field(default=0.0)

    @property
    def leads(self) -> bool:
        """Whether the Lease is ours and nobody can have taken it yet."""
        if self.renewed_at is None:
            return False
        return self.monotonic() - self.renewed_at < self.settings.duration_seconds

    @property
    def overdue(self) -> bool:
        """Whether this process leads and could not renew in time."""
        if self.renewed_at is None:
            return False
        return self.monotonic() - self.renewed_at > self.settings.renew_seconds

    @property
    def pause(self) -> float:
        """Seconds until the next attempt: a Lease that expires before is taken as it does."""
        left = self._expires_at - self.monotonic()
        waits = self.renewed_at is None and left > 0
        return min(left, self.settings.retry_seconds) if waits else self.settings.retry_seconds

    async def attempt(self) -> bool:
        """Try once to take or renew the Lease.

        Raises
        ------
        KubeError
            When the server refuses or cannot be reached.
        """
        # Before the request: a Lease counts as renewed when the renewal was sent, not answered.
        began = self.monotonic()
        try:
            lease = await self.client.get(LEASE, self.settings.name, self.namespace)
        except NotFound:
            return await self._create(began)
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        record = (holder, str(spec.get("renewTime")))
        # Expiry counts from when a change was observed: the holder's clock may be wrong.
        if record != self._seen:
            self._seen, self._seen_at = record, began
        if holder not in ("", self.identity):
            self.renewed_at = None
            duration = float(spec.get("leaseDurationSeconds") or self.settings.duration_seconds)
            self._expires_at = self._seen_at + duration
            if began < self._expires_at:
                return False
        lease["spec"] = self._spec(spec, taking=holder != self.identity)
        try:
            await self.client.replace(LEASE, lease)
        except Conflict:
            return False
        self.renewed_at = began
        return True

    async def release(self) -> None:
        """Release the Lease, so that a successor need not wait.

        Raises
        ------
        KubeError
            When the server refuses or cannot be reached; the Lease then expires.
        """
        lease = await self.client.get(LEASE, self.settings.name, self.namespace)
        if (lease.get("spec") or {}).get("holderIdentity") != self.identity:
            return
        lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
        self.renewed_at = None
        await self.client.replace(LEASE, lease)

    async def _create(self, began: float) -> bool:
        """Create the Lease as ours."""
        body = {
            "metadata": {"name": self.settings.name, "namespace": self.namespace},
            "spec": self._spec({}, taking=True),
        }
        try:
            await self.client.create(LEASE, body)
        except AlreadyExists:
            return False
        self.renewed_at = began
        return True

    def _spec(self, before: dict[str, Any], *, taking: bool) -> dict[str, Any]:
        """Build the spec of the Lease as ours."""
        now = _micro(self.clock())
        transitions = int(before.get("leaseTransitions") or 0)
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self.settings.duration_seconds)),
            "acquireTime": now if taking else before.get("acquireTime", now),
            "renewTime": now,
            "leaseTransitions": transitions + 1 if taking and before else transitions,
        }


def _micro(moment: datetime) -> str:
    """Write a time as the API's MicroTime."""
    return moment.strftime(_MICRO)


class Flag(Protocol):
    """What `threading.Event` and `asyncio.Event` have in common."""

    def is_set(self) -> bool:
        """Return whether it is set."""
        ...

    def set(self) -> None:
        """Set it."""


async def elect(
    election: Election,
    *,
    acquired: Flag,
    lost: Callable[[str], None],
    stopping: asyncio.Event,
    finished_attempt: Callable[[], None] = lambda: None,
) -> None:
    """Take the Lease and renew it, until stopped or until it is lost.

    Parameters
    ----------
    acquired
        Set once the Lease is ours.
    lost
        Called when it no longer is; the caller must not write any more.
    stopping
        Ends the election; a Lease that is ours is released.
    finished_attempt
        Called after each attempt.
    """
    async with election.client:
        while not stopping.is_set():
            was_leader = acquired.is_set()
            is_leader = await _attempt(election)
            finished_attempt()
            if is_leader and not was_leader:
                logger.info("leading as %s", election.identity)
                acquired.set()
            elif was_leader and (election.renewed_at is None or election.overdue):
                lost("the Lease was not renewed in time, or another process took it")
                return
            await _pause(election.pause, stopping)
        if acquired.is_set():
            await _release(election)


async def _attempt(election: Election) -> bool:
    """Try once, within the time in which a leader must renew."""
    try:
        async with asyncio.timeout(election.settings.renew_seconds):
            return await election.attempt()
    except (KubeError, TimeoutError) as error:
        logger.warning("the Lease could not be read or written: %s", str(error) or "no response")
        return False


async def _pause(seconds: float, stopping: asyncio.Event) -> None:
    """Wait for the next attempt, or for the stop."""
    try:
        async with asyncio.timeout(seconds):
            await stopping.wait()
    except TimeoutError:
        return


async def _release(election: Election) -> None:
    """Release the Lease; a failure only makes the successor wait."""
    try:
        async with asyncio.timeout(election.settings.retry_seconds + 1):
            await election.release()
        logger.info("released the Lease")
    except (KubeError, TimeoutError) as error:
        logger.warning("the Lease could not be released: %s", str(error) or "no response")


class ElectionThread:
    """Runs an election until it is stopped, and reports when the Lease is acquired or lost."""

    def __init__(self, make: Callable[[], Election], *, lost: Callable[[str], None]) -> None:
        self._make = make
        self._lost = lost
        self._election: Election | None = None
        self._acquired = threading.Event()
        self._stop = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._main, name="lease", daemon=True)
        self.heartbeat_at = monotonic()
        """When the thread last finished an attempt, by the monotonic clock."""

    def start(self) -> None:
        """Start to stand for election."""
        self._thread.start()

    @property
    def acquired(self) -> threading.Event:
        """Set once the Lease is ours."""
        return self._acquired

    def leads(self) -> bool:
        """Return whether the Lease is ours and nobody can have taken it yet."""
        return self._election is not None and self._election.leads

    def stop(self, *, within: float = 10.0) -> None:
        """Release the Lease and stop the thread."""
        self._stop.set()
        if self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(within)

    def _main(self) -> None:
        """Run the event loop of the thread."""
        try:
            asyncio.run(self._elect())
        except Exception as error:
            logger.exception("the election failed")
            if not self._stop.is_set():
                self._lost(f"the election failed: {error}")

    async def _elect(self) -> None:
        """Stand for election, unless `stop` was called before the loop ran."""
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        if self._stop.is_set():
            return
        self._election = self._make()
        await elect(
            self._election,
            acquired=self._acquired,
            lost=self._lost,
            stopping=self._stopping,
            finished_attempt=self._beat,
        )

    def _beat(self) -> None:
        self.heartbeat_at = monotonic()
