"""schemathesis over the OpenAPI document: generated requests in all phases, at a real facade.

CLOISTER_SCHEMATHESIS_SECONDS is the time of each of the two runs, with a key and without one;
`make schemathesis` sets ten minutes. The short runs have a fixed seed, so that they find the same
today and tomorrow.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.support.clients.openapi_check import described
from tests.support.faults.mutations import simulated_domain_checks
from tests.support.programs.facade import Facade, FacadeInstallation, start_facade
from tests.support.programs.facade_enclaves import register
from tests.support.waiting import until

SECONDS = int(os.environ.get("CLOISTER_SCHEMATHESIS_SECONDS", "60"))
KEYLESS_SECONDS = int(os.environ.get("CLOISTER_SCHEMATHESIS_SECONDS", "15"))
CONFIG = Path(__file__).parents[2] / "data" / "schemathesis.toml"
PROGRAM = Path(sys.executable).parent / "schemathesis"


def narrowed(world: FacadeInstallation) -> dict[str, Any]:
    """Return the document with the one repository that exists, so that creates can succeed."""
    document: dict[str, Any] = json.loads(json.dumps(described()))
    forms = document["components"]["schemas"]
    for form in ("CreateContainerRequest", "ValidateReleaseRequest"):
        forms[form]["examples"][0]["repo"] = world.repo
    forms["CreateContainerRequest"]["properties"]["repo"] = {"type": "string", "enum": [world.repo]}
    for form in ("CreateContainerRequest", "UpdateDeploymentRequest"):
        forms[form]["properties"]["tag"] = {"type": "string", "enum": ["v1.0.0", "v1.1.0"]}
    return document


async def generated(
    facade: Facade, world: FacadeInstallation, folder: Path, seconds: int, *more: str
) -> tuple[int, str]:
    """Run schemathesis, and return its exit status and output."""
    document = folder / "openapi.json"
    document.write_text(json.dumps(narrowed(world)))
    seed = ("--seed", "1") if seconds <= 120 else ()
    # fmt: off
    process = await asyncio.create_subprocess_exec(
        str(PROGRAM), "--config-file", str(CONFIG), "run", str(document),
        "--url", facade.base,
        "--phases", "examples,coverage,fuzzing,stateful",
        "--checks", "all",
        "--max-time", str(seconds),
        # CPython 3.11 parses source in two threads wrongly, and hypothesis parses for its reports.
        "--workers", "1",
        "--request-timeout", "60",
        "--continue-on-failure",
        *seed, *more,
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    # fmt: on
    try:
        said, _ = await process.communicate()
    except BaseException:
        process.kill()
        raise
    return process.returncode or 0, said.decode()


async def filled(client: httpx.AsyncClient, world: FacadeInstallation) -> None:
    """Make one of everything, so that what refers to it is reached."""

    async def paying() -> bool:
        answer = await client.post("/api/keys", json={"name": "first"})
        return answer.status_code == 200

    await until(paying)
    for path, body in (
        ("/api/containers", world.body("first")),
        ("/api/secrets", {"name": "FIRST", "value": "made-up"}),
        (
            "/api/ssh-keys",
            described()["components"]["schemas"]["CreateSshKeyRequest"]["examples"][0],
        ),
    ):
        answer = await client.post(path, json=body)
        assert answer.status_code == 201, answer.text
    answer = await register(world, client, f"first.{world.organization}.test")
    assert answer.status_code == 201, answer.text


@pytest.mark.spec("20.10")
@pytest.mark.nightly
@pytest.mark.timeout(SECONDS + 400)
async def test_with_a_key_nothing_contradicts_the_document(
    world: FacadeInstallation, tmp_path: Path
) -> None:
    await world.change_organization(
        billing={"containerSubscription": True, "tokenBilling": True},
        entitlements={"privateRegistries": True, "domainSuffixes": [f"{world.organization}.test"]},
        limits={"containers": 100},
    )
    # More writes than one organization may send.
    document = yaml.safe_load(world.settings.read_text())
    settings = world.settings.with_name(f"{world.organization}-unlimited.yml")
    settings.write_text(
        yaml.safe_dump({**document, "limits": {"organizationWritesPerSecond": None}})
    )
    with start_facade(settings) as facade:
        async with simulated_domain_checks(world), facade.client(world.key) as client:
            await filled(client, world)
            header = f"Authorization: Bearer {world.key}"
            status, said = await generated(facade, world, tmp_path, SECONDS, "-H", header)
            assert status == 0, said[-20_000:]
            assert (await client.get("/readyz")).status_code == 200


@pytest.mark.nightly
@pytest.mark.timeout(KEYLESS_SECONDS + 400)
async def test_without_a_key_nothing_contradicts_the_document(
    facade: Facade, world: FacadeInstallation, tmp_path: Path
) -> None:
    status, said = await generated(facade, world, tmp_path, KEYLESS_SECONDS)
    assert status == 0, said[-20_000:]
    assert await world.containers() == []
