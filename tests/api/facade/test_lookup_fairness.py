"""An organization whose registry keeps the facade waiting makes nobody else wait."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from tests.api.facade.test_serving import changed
from tests.support.programs.facade import FacadeInstallation, config_file, start_facade
from tests.support.stand_ins.slow_registry import SlowRegistry, slow_registry
from tests.support.waiting import until

IMAGES = 64
REQUESTS = 12
LONG = 120.0
"""Seconds that the lookups of an attacker's request take: who waited for one would take as long."""


@pytest.fixture
def slow() -> Iterator[SlowRegistry]:
    with slow_registry() as running:
        yield running


def attacked(world: FacadeInstallation, slow: SlowRegistry, seconds: float) -> Path:
    """Write settings of a facade that reaches the slow registry as it reaches others.

    Parameters
    ----------
    seconds
        Seconds that the lookups of one request may take.
    """
    hosts = [world.registry.host, slow.host]
    registry = {"allowPrivate": hosts, "plainHttp": hosts}
    lookups = {"requestSeconds": seconds, "requestsPerOrganization": REQUESTS - 2}
    return changed(world, "slow", registry=registry, lookups=lookups)


def many_images(registry: str) -> bytes:
    """Write a file whose images are all of one registry."""
    names = [f"{registry}/x@sha256:{number + 1:064x}" for number in range(IMAGES)]
    document = yaml.safe_load(config_file(names[0]))
    document["containers"] = [
        {"name": f"c{number}", "image": name} for number, name in enumerate(names)
    ]
    document["shim"]["upstream-container"] = "c0"
    return yaml.safe_dump(document).encode()


async def validated(client: httpx.AsyncClient, world: FacadeInstallation) -> float:
    """Validate a release that is right, and return how long it took in seconds."""
    begun = time.monotonic()
    answer = await client.post(
        "/api/containers/validate", json={"repo": world.repo, "tag": "v1.1.0"}
    )
    assert answer.json()["valid"], answer.text
    return time.monotonic() - begun


@pytest.mark.spec("20.23")
async def test_another_organization_does_not_wait_for_an_attackers_lookups(
    world: FacadeInstallation, other_world: FacadeInstallation, slow: SlowRegistry
) -> None:
    world.repository.release("v2", many_images(slow.host))
    release = {"repo": world.repo, "tag": "v2"}
    with start_facade(attacked(world, slow, LONG)) as facade:
        async with facade.client(world.key) as attacker, facade.client(other_world.key) as other:
            attack = [
                asyncio.create_task(
                    attacker.post("/api/containers/validate", json=release, timeout=2 * LONG)
                )
                for _ in range(REQUESTS - 1)
            ]

            async def waits() -> bool:
                # One is refused, so that as many as may look something up are doing it.
                return slow.asked >= 4 and any(task.done() for task in attack)

            await until(waits, every=0.02, what="the attacker's lookups at the slow registry")
            refused = [task.result() for task in attack if task.done()]
            refused.append(await attacker.post("/api/containers", json=world.body("web")))
            beside = [await validated(other, other_world) for _ in range(3)]
            still = [task for task in attack if not task.done()]
            for task in still:
                task.cancel()
            await asyncio.gather(*still, return_exceptions=True)
    assert len(still) == REQUESTS - 2
    assert max(beside) < LONG / 4
    assert [answer.status_code for answer in refused] == [429, 429]
    assert {answer.headers["retry-after"] for answer in refused} == {"5"}


@pytest.mark.spec("20.23")
async def test_lookups_end_with_the_time_of_their_request(
    world: FacadeInstallation, slow: SlowRegistry
) -> None:
    world.repository.release("v2", many_images(slow.host))
    release = {"repo": world.repo, "tag": "v2"}
    with start_facade(attacked(world, slow, 5)) as facade:
        async with facade.client(world.key) as client:
            validation, create = await asyncio.gather(
                client.post("/api/containers/validate", json=release),
                client.post("/api/containers", json=world.body("web", tag="v2")),
            )
    # The file is not wrong: a pipeline that asks must not read it so.
    assert (validation.status_code, validation.json()["code"]) == (503, "UNAVAILABLE")
    assert "5 seconds" in validation.json()["error"]
    assert (create.status_code, create.json()["code"]) == (503, "UNAVAILABLE")
    assert "seconds" in create.json()["error"]
    assert create.headers["retry-after"]
    assert await world.containers() == []
