"""Requests in the form in which public clients send them, byte by byte, at a real facade.

`tests/data/clients` holds them, one file for each client, with what its author relies on in the
responses. No operator runs: a step ``observed`` is the status that it would write.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from cloister_api.ledger.database import open_ledger, place_of
from cloister_api.ledger.keys.admin_keys import Reporters
from cloister_api.ledger.keys.key_material import KeyMaterial
from cloister_api.settings import ApiSettings
from cloister_clients.clock import utc_now
from tests.support.builders.usage import sign
from tests.support.cluster.clusters import unique
from tests.support.programs.facade import Facade, FacadeInstallation
from tests.support.waiting import until

CLIENTS = {
    path.stem: yaml.safe_load(path.read_text())
    for path in sorted(Path("tests/data/clients").glob("*.yaml"))
}
KEYLESS = ("/api/internal/", "/api/shim/")
"""Paths that programs ask without an admin key."""


def test_every_client_has_requests() -> None:
    assert len(CLIENTS) >= 5
    for name, recorded in CLIENTS.items():
        assert any("request" in step for step in recorded["steps"]), name


@pytest.mark.spec("20.3", "24.8", "25.1", "26.6")
@pytest.mark.parametrize("name", CLIENTS)
async def test_requests_of_public_clients_are_taken_as_they_are_sent(
    facade: Facade, world: FacadeInstallation, name: str
) -> None:
    recorded = CLIENTS[name]
    await world.change_organization(billing={"containerSubscription": True, "tokenBilling": True})
    values = {"repo": world.repo}
    secret = ""
    if recorded.get("reporter"):
        values["reporter"] = unique("router")
        secret = await reporter_secret(world, values["reporter"])
    async with facade.client(world.key) as admin, facade.client() as program:
        for step in recorded["steps"]:
            if "observed" in step:
                await observed(admin, world, values["web"], step["observed"])
                continue
            method, target = filled(step["request"], values).split(" ", 1)
            values |= {"delivery": unique("d"), "now": nanoseconds()}
            body = filled(step.get("body", ""), values).encode()
            headers = {**recorded["headers"], **step.get("headers", {})}
            if body:
                headers["content-type"] = "application/json"
            if secret and target.startswith("/api/internal/"):
                headers |= sign(secret, values["delivery"], body, utc_now(), values["reporter"])
            client = program if target.startswith(KEYLESS) else admin
            answer = await taken(client, method, target, step["status"], body, headers)
            found = answer.json() if answer.content else None
            wanted = json.loads(filled(json.dumps(step.get("answer", {})), values))
            assert wanted == {} or agrees(found, wanted), answer.text
            for word, field in step.get("remember", {}).items():
                values[word] = str(value_at(found, field))


async def reporter_secret(world: FacadeInstallation, name: str) -> str:
    """Create a reporter, and return its secret."""
    ledger = ApiSettings.read(world.settings).ledger
    engine = open_ledger(place_of(ledger))
    try:
        material = KeyMaterial.read(ledger.key_material)
        return await Reporters(engine, material).create(name, utc_now())
    finally:
        await engine.dispose()


async def taken(
    client: httpx.AsyncClient,
    method: str,
    target: str,
    status: int,
    body: bytes,
    headers: Mapping[str, str],
) -> httpx.Response:
    """Send a request, and return its response; billing is seen a moment after it was written."""

    async def sent() -> list[httpx.Response]:
        answer = await client.request(method, target, content=body, headers=headers)
        return [] if answer.status_code == 402 else [answer]

    (answer,) = await until(sent, what=f"{method} {target}")
    assert answer.status_code == status, f"{method} {target}: {answer.text}"
    return answer


async def observed(
    client: httpx.AsyncClient, world: FacadeInstallation, container: str, status: dict[str, Any]
) -> None:
    """Write the status of the container "web" as the operator would, and wait until it is shown."""
    await world.report("web", **status)

    async def shown() -> bool:
        record = (await client.get(f"/api/containers/{container}")).json()
        return bool(record["status"] == status["phase"])

    await until(shown, what=f"the status {status['phase']}")


def nanoseconds() -> str:
    """Return the present time as Go writes it."""
    return utc_now().isoformat(timespec="microseconds").replace("+00:00", "789Z")


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return a text with the values of its ``<names>``."""
    for name, value in values.items():
        text = text.replace(f"<{name}>", value)
    return text


def agrees(found: Any, wanted: Any) -> bool:
    """Return whether a response has what is expected; an object may have more fields."""
    if isinstance(wanted, dict) and wanted:
        return all(name in found and agrees(found[name], each) for name, each in wanted.items())
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(agrees, found, wanted))
    return bool(found == wanted)


def value_at(found: Any, path: str) -> Any:
    """Return the value at a path such as ``0.id``."""
    for part in path.split("."):
        found = found[int(part) if part.isdecimal() else part]
    return found
