"""An organization whose registry keeps the facade waiting makes nobody else wait."""

import asyncio
import time
from collections.abc import Iterator

import httpx
import pytest
import yaml

from tests.api.facade.test_serving import changed
from tests.support.programs.facade import (
    Facade,
    FacadeInstallation,
    config_file,
    start_facade,
)
from tests.support.stand_ins.slow_registry import SlowRegistry, slow_registry
from tests.support.waiting import until

IMAGES = 64
REQUESTS = 12
MARGIN = 2.0
"""Seconds that another organization may add to a request."""
DEADLINE = 5.0
"""Seconds that the lookups of one request may take here."""


@pytest.fixture
def slow() -> Iterator[SlowRegistry]:
    with slow_registry() as running:
        yield running


@pytest.fixture
def attacked(world: FacadeInstallation, slow: SlowRegistry) -> Iterator[Facade]:
    """Run a facade that reaches the slow registry as it reaches others."""
    hosts = [world.registry.host, slow.host]
    registry = {"allowPrivate": hosts, "plainHttp": hosts}
    lookups = {"requestSeconds": DEADLINE, "requestsPerOrganization": REQUESTS - 2}
    with start_facade(changed(world, "slow", registry=registry, lookups=lookups)) as facade:
        yield facade


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


async def test_another_organization_validates_as_fast_as_alone(
    attacked: Facade,
    world: FacadeInstallation,
    other_world: FacadeInstallation,
    slow: SlowRegistry,
) -> None:
    world.repository.release("v2", many_images(slow.host))
    release = {"repo": world.repo, "tag": "v2"}
    async with attacked.client(world.key) as attacker, attacked.client(other_world.key) as other:
        await other_world.await_cached_by(attacked)
        alone = max([await validated(other, other_world) for _ in range(3)])
        attack = [
            asyncio.create_task(attacker.post("/api/containers/validate", json=release))
            for _ in range(REQUESTS - 1)
        ]
        attack.append(asyncio.create_task(attacker.post("/api/containers", json=world.body("web"))))

        async def waits() -> bool:
            return slow.asked >= 4

        await until(waits, every=0.02, what="the attacker's lookups at the slow registry")
        beside: list[float] = []
        while len(beside) < 3 and not all(task.done() for task in attack):
            beside.append(await validated(other, other_world))
        assert beside
        answers = await asyncio.gather(*attack)
    assert max(beside) <= alone + MARGIN
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(refused) == 2
    assert {answer.headers["retry-after"] for answer in refused} == {"5"}
    for answer in answers:
        if answer.status_code != 429:
            errors = answer.json()["errors"]
            assert {error["code"] for error in errors} == {"RegistryUnavailable"}
            assert "5 seconds" in errors[-1]["message"]
            assert len(errors) == IMAGES


async def test_a_create_that_has_no_time_left_is_503(
    attacked: Facade, world: FacadeInstallation, slow: SlowRegistry
) -> None:
    world.repository.release("v2", many_images(slow.host))
    async with attacked.client(world.key) as client:
        answer = await client.post("/api/containers", json=world.body("web") | {"tag": "v2"})
    assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")
    assert "seconds" in answer.json()["error"]
    assert answer.headers["retry-after"]
    assert await world.containers() == []
