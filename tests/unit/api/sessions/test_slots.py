"""Who gives way where too many sign-ins wait for the provider."""

import asyncio

import pytest

from cloister_api.sessions.provider.refusal import RefusalReason, SignInRefused
from cloister_api.sessions.provider.sign_in import SignInSlots


async def wait_in(slots: SignInSlots, address: str, until: asyncio.Event) -> str:
    """Wait in a slot, and return what came of it."""
    try:
        async with slots.enter(address):
            await until.wait()
    except SignInRefused as error:
        return error.reason
    return "completed"


async def test_one_address_that_sends_many_displaces_its_own() -> None:
    slots, done = SignInSlots(4), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        person = group.create_task(wait_in(slots, "192.0.2.1", done))
        many = []
        for _ in range(20):
            many.append(group.create_task(wait_in(slots, "203.0.113.9", done)))
            await asyncio.sleep(0)
        late = group.create_task(wait_in(slots, "192.0.2.2", done))
        await asyncio.wait(many[:18])
        done.set()
    assert (person.result(), late.result()) == ("completed", "completed")
    assert [each.result() for each in many] == [RefusalReason.BUSY] * 18 + ["completed"] * 2


async def test_of_many_addresses_the_oldest_gives_way() -> None:
    slots, done = SignInSlots(2), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        tasks = []
        for number in range(5):
            tasks.append(group.create_task(wait_in(slots, f"203.0.113.{number}", done)))
            await asyncio.sleep(0)
        await asyncio.wait(tasks[:3])
        done.set()
    assert [each.result() for each in tasks] == [RefusalReason.BUSY] * 3 + ["completed"] * 2


async def test_a_timeout_of_the_block_is_its_own() -> None:
    with pytest.raises(TimeoutError):
        async with SignInSlots(1).enter("192.0.2.1"):
            raise TimeoutError
