"""The model catalog at a real facade: for everybody, and followed."""

import json

import pytest
import yaml

from tests.support.builders.catalog import RECORD
from tests.support.programs.facade import Facade, FacadeInstallation, run_command, start_facade
from tests.support.waiting import until


@pytest.mark.spec("11.1", "27.9")
async def test_the_catalog_needs_no_key_and_is_empty_by_default(facade: Facade) -> None:
    async with facade.client() as client:
        answer = await client.get("/api/config/models")
        assert (answer.status_code, answer.json()) == (200, [])
        assert (await client.get("/v1/models")).json() == {"object": "list", "data": []}
        assert (await client.post("/api/config/models")).status_code == 405


@pytest.mark.spec("11.1")
async def test_the_catalog_is_followed_beside_a_running_facade(world: FacadeInstallation) -> None:
    file = world.settings.with_name(f"{world.organization}.json")
    file.write_text(json.dumps([RECORD]))
    document = {**yaml.safe_load(world.settings.read_text()), "catalog": file.name}
    settings = world.settings.with_name(f"{world.organization}.yml")
    settings.write_text(yaml.safe_dump(document))
    with start_facade(settings) as second:
        async with second.client("nonsense") as client:
            assert (await client.get("/api/config/models")).json() == [RECORD]
            assert (await client.get("/api/config/models?paid=true&chat=true")).json() == [RECORD]
            assert (await client.get("/api/config/models?paid=false")).json() == []
            wrong = await client.get("/api/config/models?paid=maybe")
            assert (wrong.status_code, wrong.json()["details"][0]["field"]) == (400, "paid")
            assert (await client.get("/v1/models")).json()["data"][0]["id"] == "north-7b"
            file.write_text(json.dumps([RECORD, {**RECORD, "modelName": "south"}]))

            async def followed() -> bool:
                return len((await client.get("/v1/models")).json()["data"]) == 2

            await until(followed)
    file.write_text("[{}]")
    refused = run_command("api", "--config", str(settings), check=False)
    assert refused.returncode == 1
    assert "0.modelName: is missing" in refused.stderr
