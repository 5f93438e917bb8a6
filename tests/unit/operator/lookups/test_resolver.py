"""Lookups: single flight, cached answers, repeated failures with backoff."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cloister_clients.sources import SourceKind, SourceSettings
from cloister_crds.lifecycle.state.observed import (
    Failed,
    Known,
    LookupResult,
    Need,
    NeedImage,
    NeedRelease,
    NeedSecretValues,
    SecretValues,
)
from cloister_operator.lookups.external_lookup import TimedOut
from cloister_operator.lookups.lanes import Lanes
from cloister_operator.lookups.resolver import LookupResolver
from cloister_operator.telemetry.metrics import OperatorMetrics
from cloister_operator.workqueue.triggers import Key
from tests.support.waiting import until

NEED = NeedRelease(repo="a/b", tag="v1", commit=None, request="r1")
KEY = Key("Container", "ns", "web")


class World:
    """A clock that a test moves, and lookups that a test answers."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.asked: list[Need] = []
        self.enqueued: list[Key] = []
        self.answer: LookupResult | Exception = Known(SecretValues(), self.now)
        self.gate = asyncio.Event()
        self.gate.set()
        self.busy = self.most = 0
        sources = SourceSettings(kind=SourceKind.GITHUB)
        self.lanes = Lanes(total=64, per_organization=2, sources=sources, clock=lambda: self.now)
        self.resolver = LookupResolver(
            self.ask,
            enqueue=self.enqueued.append,
            metrics=OperatorMetrics(),
            lanes=self.lanes,
            clock=lambda: self.now,
        )

    async def ask(self, need: Need) -> LookupResult:
        """Return the answer that the test wants."""
        self.asked.append(need)
        self.busy += 1
        self.most = max(self.most, self.busy)
        await self.gate.wait()
        self.busy -= 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return replace(self.answer, at=self.now)

    async def works_on(self, count: int) -> None:
        """Wait until so many lookups run."""

        async def busy() -> bool:
            return self.busy == count

        await until(busy, within=5, every=0.001)

    async def idle(self) -> bool:
        """Return whether nothing waits or runs in any lane."""
        return all(lane.waiting == lane.running == 0 for lane in self.lanes.by_name.values())

    async def answered(self, need: Need) -> LookupResult:
        """Wait for an answer in the cache."""

        async def there() -> LookupResult | None:
            return self.resolver.results.get(need)

        found = await until(there, within=5, every=0.001)
        assert found is not None
        return found


@pytest.fixture
async def world() -> World:
    return World()


async def test_many_keys_share_one_lookup_and_all_are_enqueued(world: World) -> None:
    world.gate.clear()
    keys = [KEY._replace(name=f"c{number}") for number in range(5)]
    for key in keys:
        world.resolver.request(NEED, key)
    world.gate.set()
    await world.answered(NEED)
    assert len(world.asked) == 1
    assert sorted(world.enqueued) == keys


@pytest.mark.parametrize("later", [timedelta(seconds=6), timedelta(hours=-1)])
async def test_a_recent_answer_to_an_equal_lookup_is_reused_at_once(
    world: World, later: timedelta
) -> None:
    world.resolver.request(NEED, KEY)
    await world.answered(NEED)
    second, third = replace(NEED, request="r2"), replace(NEED, request="r3")
    assert world.resolver.reuse_recent(second, KEY)
    assert world.resolver.results[second] == world.resolver.results[NEED]
    assert not world.resolver.reuse_recent(second, KEY)
    world.now += later
    assert not world.resolver.reuse_recent(third, KEY)
    assert third not in world.resolver.results
    assert len(world.asked) == 1


async def test_another_lookup_shares_a_recent_answer_and_not_an_old_one(world: World) -> None:
    world.resolver.request(NEED, KEY)
    await world.answered(NEED)
    second, third = replace(NEED, request="r2"), replace(NEED, request="r3")
    world.resolver.request(second, KEY)
    await world.answered(second)
    assert len(world.asked) == 1
    world.now += timedelta(seconds=6)
    world.resolver.request(third, KEY)
    await world.answered(third)
    assert len(world.asked) == 2


async def test_a_known_answer_is_not_looked_up_again(world: World) -> None:
    world.resolver.request(NEED, KEY)
    await world.answered(NEED)
    world.now += timedelta(hours=1)
    world.resolver.request(NEED, KEY)
    await asyncio.sleep(0)
    assert len(world.asked) == 1


async def test_a_transient_failure_is_repeated_with_backoff(world: World) -> None:
    world.answer = Failed("SourceUnavailable", "no answer", transient=True, at=world.now)
    waits = []
    for _ in range(3):
        world.resolver.invalidate(NEED)
        world.resolver.request(NEED, KEY)
        answer = await world.answered(NEED)
        assert isinstance(answer, Failed)
        assert answer.retry_at is not None
        waits.append((answer.retry_at - world.now).total_seconds())
        count = len(world.asked)
        world.resolver.request(NEED, KEY)
        await asyncio.sleep(0)
        assert len(world.asked) == count
        world.now = answer.retry_at
    assert waits == [10, 20, 40]


async def test_a_terminal_failure_is_not_repeated(world: World) -> None:
    world.answer = Failed("TagNotFound", "no tag", transient=False, at=world.now)
    world.resolver.request(NEED, KEY)
    await world.answered(NEED)
    world.now += timedelta(days=1)
    world.resolver.request(NEED, KEY)
    await asyncio.sleep(0)
    assert len(world.asked) == 1


async def test_only_so_many_lookups_run_at_once(world: World) -> None:
    world.gate.clear()
    needs = [replace(NEED, tag=f"v{number}") for number in range(6)]
    for need in needs:
        world.resolver.request(need, KEY)

    await world.works_on(2)
    world.gate.set()
    for need in needs:
        await world.answered(need)
    assert world.most == 2


async def test_an_unexpected_error_of_a_lookup_is_a_transient_failure(world: World) -> None:
    world.answer = RuntimeError("hidden detail")
    need = NeedSecretValues(namespace="ns", refs=(), request="r")
    world.resolver.request(need, KEY)
    answer = await world.answered(need)
    assert isinstance(answer, Failed)
    assert answer.transient
    assert "hidden detail" not in answer.message
    await world.resolver.aclose()


def image(number: int, *, registry: str = "slow.example") -> NeedImage:
    return NeedImage(f"{registry}/x@sha256:{number:064x}", "linux/amd64", "ns", (), "r")


async def test_what_waits_for_a_host_that_timed_out_twice_fails_with_its_name(
    world: World,
) -> None:
    world.answer = TimedOut("RegistryUnavailable", "too slow", transient=True, at=world.now)
    world.gate.clear()
    needs = [image(number) for number in range(20)]
    for need in needs:
        world.resolver.request(need, KEY)
    await world.works_on(2)
    world.gate.set()
    failed = [await world.answered(need) for need in needs]
    asked = len(world.asked)
    assert asked <= 4
    assert isinstance(failed[19], Failed)
    assert failed[19].retry_at == world.now + timedelta(seconds=10)
    assert "slow.example did not respond in time" in failed[19].message
    assert "00:00:10 UTC" in failed[19].message
    other = image(0, registry="fast.example")
    world.resolver.request(other, KEY)
    await world.answered(other)
    assert len(world.asked) == asked + 1


async def test_a_host_that_was_left_alone_is_probed_once(world: World) -> None:
    world.answer = TimedOut("RegistryUnavailable", "too slow", transient=True, at=world.now)
    for number in range(2):
        world.resolver.request(image(number), KEY)
        await world.answered(image(number))
    world.now += timedelta(seconds=10)
    world.answer = Known(SecretValues(), world.now)
    world.gate.clear()
    for number in range(2, 9):
        world.resolver.request(image(number), KEY)
    await world.works_on(1)
    assert len(world.asked) == 3
    world.gate.set()
    for number in range(2, 9):
        assert isinstance(await world.answered(image(number)), Known)


async def test_two_organizations_that_ask_at_once_share_a_lookup(world: World) -> None:
    world.gate.clear()
    for number in range(10):
        world.resolver.request(replace(NEED, tag=f"v{number}"), KEY)
    world.resolver.request(replace(NEED, tag="v9"), KEY._replace(namespace="other"))
    await world.works_on(3)
    assert world.asked[-1] == replace(NEED, tag="v9")
    world.gate.set()
    for number in range(10):
        await world.answered(replace(NEED, tag=f"v{number}"))
    assert len(world.asked) == 10
    await until(world.idle, within=5, every=0.001)


@pytest.mark.parametrize("revision", ["r1", "other"])
async def test_nobody_waits_behind_the_share_of_who_asked_first(
    world: World, revision: str
) -> None:
    world.gate.clear()
    for number in range(10):
        world.resolver.request(replace(NEED, tag=f"v{number}"), KEY)
    await world.works_on(2)
    wanted = replace(NEED, tag="v9", request=revision)
    world.resolver.request(wanted, KEY._replace(namespace="other"))
    await world.works_on(3)
    assert world.asked[-1] == replace(NEED, tag="v9")
    world.gate.set()
    await world.answered(wanted)


async def test_lookups_that_are_cancelled_leave_their_lanes(world: World) -> None:
    world.gate.clear()
    for number in range(10):
        world.resolver.request(replace(NEED, tag=f"v{number}"), KEY)
        world.resolver.request(image(number), KEY)
    await world.works_on(4)
    world.resolver.request(replace(NEED, tag="last"), KEY)
    await world.resolver.aclose()
    assert await world.idle()
