"""GET /api/containers/:id/logs: of which containers there are none, and why."""

import uuid

import pytest

from tests.support.programs.facade import Facade, FacadeInstallation


@pytest.mark.spec("21.22")
async def test_production_containers_have_no_logs_and_the_reason_is_said(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        made = await client.post("/api/containers", json=world.body("web"))
        assert made.status_code == 201, made.text
        for query in ("", "?follow=true"):
            refused = await client.get(f"{made.headers['location']}/logs{query}")
            assert (refused.status_code, refused.json()["code"]) == (409, "CONFLICT")
            assert "only shown of debug containers" in refused.json()["error"]
        nobody = await client.get(f"/api/containers/{uuid.uuid4()}/logs")
        assert nobody.status_code == 404


@pytest.mark.spec("21.22")
async def test_what_has_not_started_and_what_the_file_lacks_is_named(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        made = await client.post("/api/containers", json=world.body("web", debug=True))
        assert made.status_code == 201, made.text
        path = f"{made.headers['location']}/logs"
        refused = await client.get(path)
        assert (refused.status_code, "no enclave" in refused.text) == (409, True)
        name = next(
            each["metadata"]["name"] for each in await world.containers() if each["spec"]["debug"]
        )
        # Decided as a production enclave: what still serves counts, not what is requested.
        enclave = await world.enclave(name)
        await world.report(name, phase="ready", activeEnclave=enclave)
        item = await world.container(name)
        assert item is not None
        seen = {"X-Consistency-Token": item["metadata"]["resourceVersion"]}
        refused = await client.get(path, headers=seen)
        assert "only shown of debug containers" in refused.json()["error"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("tail=-1", "tail"),
        ("tail=1001", "tail"),
        ("since=yesterday", "since"),
        ("follow=1", "follow"),
        ("which=x", "which"),
    ],
)
async def test_what_cannot_be_chosen_is_named(
    facade: Facade, world: FacadeInstallation, query: str, field: str
) -> None:
    async with facade.client(world.key) as client:
        refused = await client.get(f"/api/containers/{uuid.uuid4()}/logs?{query}")
        assert refused.status_code == 400
        assert refused.json()["details"][0]["field"] == field
