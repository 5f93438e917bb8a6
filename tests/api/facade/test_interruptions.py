"""The facade killed in the middle of its work, and two of them at once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx
import pytest

from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Deployment
from tests.support.programs.facade import Facade, FacadeInstallation, start_facade
from tests.support.waiting import until


@contextlib.asynccontextmanager
async def another(world: FacadeInstallation) -> AsyncIterator[Facade]:
    """Run a facade of the test's own."""
    starting = start_facade(world.settings)
    running = await asyncio.to_thread(starting.__enter__)
    try:
        yield running
    finally:
        await asyncio.to_thread(starting.__exit__, None, None, None)


async def killed_while_creating(world: FacadeInstallation, after: float) -> None:
    """Send a create and kill the facade some moments later, whatever it is doing."""
    async with another(world) as doomed, doomed.client(world.key) as client:
        sending = asyncio.create_task(client.post("/api/containers", json=world.body("web")))
        done, _ = await asyncio.wait([sending], timeout=after)
        doomed.kill()
        if not done:
            with contextlib.suppress(httpx.TransportError):
                await sending


@pytest.mark.nightly
@pytest.mark.parametrize("after", [0.05, 0.15, 0.25, 0.4])
async def test_a_create_repeated_after_a_kill_works(
    facade: Facade, world: FacadeInstallation, after: float
) -> None:
    await killed_while_creating(world, after)
    answered = [row for row in await world.audit() if row.action == "container.create"]
    async with facade.client(world.key) as client:
        again = await client.post("/api/containers", json=world.body("web"))
        # Killed after its answer was on the way: the name is then taken, by the container itself.
        assert again.status_code == (409 if answered else 201), again.text

        async def listed() -> list[str]:
            return [one["name"] for one in (await client.get("/api/containers")).json()]

        # What the dead one made, this one sees a moment later.
        assert await until(listed, what="the container") == ["web"]
    (container,) = await world.containers()
    assert container["spec"]["name"] == "web"


@pytest.mark.spec("20.18")
async def test_a_create_without_a_response_is_idempotent(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        made = await client.post("/api/containers", json=world.body("web"))
        await world.forget_response(made.json()["id"])
        again = await client.post("/api/containers", json=world.body("web"))
        assert again.status_code == 201, again.text
        assert again.json()["id"] == made.json()["id"]
        other = await client.post("/api/containers", json=world.body("web", tag="v1.1.0"))
        assert other.status_code == 409


async def test_an_idempotency_key_repeats_the_answer(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        headers = {"Idempotency-Key": "one"}
        made = await client.post("/api/containers", json=world.body("web"), headers=headers)
        again = await client.post("/api/containers", json=world.body("web"), headers=headers)
        assert (made.status_code, again.status_code) == (201, 201)
        assert made.json()["id"] == again.json()["id"]
        other = await client.post(
            "/api/containers", json=world.body("web"), headers={"Idempotency-Key": "two"}
        )
        assert other.status_code == 409


@pytest.mark.spec("20.19")
async def test_two_replicas_see_each_others_writes(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with (
        another(world) as second,
        facade.client(world.key) as one,
        second.client(world.key) as two,
    ):
        for number in range(5):
            made = await one.post("/api/containers", json=world.body(f"w{number}"))
            assert made.status_code == 201, made.text
            token = {"X-Consistency-Token": made.headers["x-consistency-token"]}
            listed = (await two.get("/api/containers", headers=token)).json()
            assert len(listed) == number + 1
            got = await two.get(made.headers["location"])
            assert got.status_code == 200
        stopped = await two.post(f"{made.headers['location']}/stop")
        token = {"X-Consistency-Token": stopped.headers["x-consistency-token"]}
        seen = await one.get(made.headers["location"], headers=token)
        assert seen.json()["status"] == "stopping"
        assert second.stop() == 0


@pytest.mark.spec("25.8")
async def test_a_key_revoked_by_command_is_refused_everywhere_soon(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        assert (await client.get("/api/containers")).status_code == 200
        await world.revoke(world.key)

        async def refused() -> bool:
            return (await client.get("/api/containers")).status_code == 403

        await until(refused, within=30)


async def test_a_stop_lets_the_running_request_end(world: FacadeInstallation) -> None:
    async with another(world) as stopping, stopping.client(world.key) as client:
        sending = asyncio.create_task(client.post("/api/containers", json=world.body("web")))

        async def begun() -> bool:
            made = await world.kube.list(of(Deployment), world.namespace)
            return bool(made.items) or sending.done()

        await until(begun, every=0.01)
        assert await asyncio.to_thread(stopping.stop) == 0
        assert (await sending).status_code == 201


@pytest.mark.spec("20.19")
async def test_an_invalid_consistency_token_is_refused(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        headers = {"X-Consistency-Token": "soon"}
        assert (await client.get("/api/containers", headers=headers)).status_code == 400
