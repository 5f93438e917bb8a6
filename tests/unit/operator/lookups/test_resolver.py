"""Lookups: single flight, cached answers, repeated failures with backoff."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cloister_crds.lifecycle.state.observed import (
    Failed,
    Known,
    LookupResult,
    Need,
    NeedRelease,
    NeedSecretValues,
    SecretValues,
)
from cloister_operator.lookups.resolver import LookupResolver
from cloister_operator.telemetry.metrics import OperatorMetrics
from cloister_operator.workqueue.keys import Key
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
        self.resolver = LookupResolver(
            self.ask,
            enqueue=self.enqueued.append,
            metrics=OperatorMetrics(),
            limit=2,
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
    assert world.resolver.reuse_recent(second)
    assert world.resolver.results[second] == world.resolver.results[NEED]
    assert not world.resolver.reuse_recent(second)
    world.now += later
    assert not world.resolver.reuse_recent(third)
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

    async def full() -> bool:
        return world.busy == 2

    await until(full, within=5, every=0.001)
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
