"""The leader election, with a Lease in memory that refuses old versions as the server does."""

from typing import Any

import pytest

from cloister_clients.kube import AlreadyExists, Conflict, NotFound
from cloister_operator.process.leader_election import Election
from cloister_operator.settings import LeaseSettings


class Leases:
    """One Lease."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0

    async def get(self, *_: object) -> dict[str, Any]:
        """Read it."""
        if self.lease is None:
            raise NotFound(404, "NotFound", "no Lease")
        return {"metadata": dict(self.lease["metadata"]), "spec": dict(self.lease["spec"])}

    async def create(self, _ref: object, body: dict[str, Any]) -> dict[str, Any]:
        """Create it."""
        if self.lease is not None:
            raise AlreadyExists(409, "AlreadyExists", "taken")
        return self._keep(body)

    async def replace(self, _ref: object, body: dict[str, Any]) -> dict[str, Any]:
        """Replace it."""
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise Conflict(409, "Conflict", "old version")
        return self._keep(body)

    def _keep(self, body: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        metadata = {**body["metadata"], "resourceVersion": str(self.version)}
        self.lease = {"metadata": metadata, "spec": dict(body["spec"])}
        return self.lease


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def candidate(leases: Leases, clock: Clock, name: str) -> Election:
    client: Any = leases
    return Election(client, LeaseSettings(), "system", name, monotonic=clock)


async def test_the_first_leads_and_the_second_waits() -> None:
    leases, clock = Leases(), Clock()
    one, two = candidate(leases, clock, "one"), candidate(leases, clock, "two")
    assert await one.attempt()
    assert not await two.attempt()
    assert (one.leads, two.leads) == (True, False)


async def test_a_silent_leader_is_replaced_and_no_longer_leads() -> None:
    leases, clock = Leases(), Clock()
    one, two = candidate(leases, clock, "one"), candidate(leases, clock, "two")
    await one.attempt()
    await two.attempt()
    clock.now += 14
    assert not await two.attempt()
    assert one.overdue
    clock.now += 2
    assert not one.leads
    assert await two.attempt()
    assert not await one.attempt()
    assert one.renewed_at is None
    assert leases.lease is not None
    assert leases.lease["spec"]["leaseTransitions"] == 1


async def test_a_lease_is_attempted_at_the_moment_it_expires() -> None:
    leases, clock = Leases(), Clock()
    one, two = candidate(leases, clock, "one"), candidate(leases, clock, "two")
    await one.attempt()
    clock.now += 1.9
    assert not await two.attempt()
    for wait in (*(7 * [2.0]), 1.0):
        assert two.pause == pytest.approx(wait)
        clock.now += two.pause
        taken = await two.attempt()
    assert taken
    assert clock.now == pytest.approx(100 + 1.9 + 15)
    assert (one.pause, two.pause) == (2.0, 2.0)
    await two.release()
    assert two.pause == 2.0


async def test_a_leader_that_renews_is_not_replaced() -> None:
    leases, clock = Leases(), Clock()
    one, two = candidate(leases, clock, "one"), candidate(leases, clock, "two")
    await one.attempt()
    for _ in range(20):
        clock.now += 4
        assert not await two.attempt()
        assert await one.attempt()


async def test_a_released_lease_is_taken_at_once() -> None:
    leases, clock = Leases(), Clock()
    one, two = candidate(leases, clock, "one"), candidate(leases, clock, "two")
    await one.attempt()
    assert not await two.attempt()
    await one.release()
    assert not one.leads
    assert await two.attempt()


async def test_a_lease_written_between_read_and_write_is_not_acquired() -> None:
    leases, clock = Leases(), Clock()
    one = candidate(leases, clock, "one")
    await one.attempt()
    await one.release()
    read = await leases.get()
    leases.version += 1
    assert leases.lease is not None
    leases.lease["metadata"] = {**read["metadata"], "resourceVersion": "stale"}
    assert not await candidate(leases, clock, "two").attempt()
