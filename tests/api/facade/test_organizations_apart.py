"""Another organization's key learns nothing, whatever operation it names a thing in.

The operations come from the OpenAPI document, so that a new endpoint cannot be forgotten.
"""

import contextlib
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from cloister_api.ledger.keys.key_material import REGULAR_PREFIX, generate
from cloister_api.openapi.document import operations
from tests.support.clients.openapi_check import described
from tests.support.programs.facade import Facade, FacadeInstallation
from tests.support.programs.facade_enclaves import register
from tests.support.waiting import until

OWN_NAMES = {"registry"}
"""Parameters whose values are the same words for every organization."""
NAMED_IN_BODIES = {
    "CreateContainerRequest.replace_container_id": "container_id",
    "UpdateDeploymentRequest.instance_ids": "container_id",
    "KeyUsageRequest.key": "key",
    "UpdateApiKeyRequest.key": "key",
    "ValidateReleaseRequest.container_id": "container_id",
    "ValidateReleaseRequest.replace_container_id": "container_id",
    "ValidateNameRequest.container_id": "container_id",
}
"""Fields of bodies that name a thing -> what they name."""
VALUES = {
    "PutRegistryCredentialsRequest.key",
    "Event.event_id",
    "Event.request_id",
    "Report.delivery_id",
}
"""Fields that are called so and name nothing that an organization has."""


def with_parameters() -> list[tuple[str, str]]:
    """Return method and path of every operation for holders of a key with a thing in its path."""
    return [
        (method, path)
        for path, method, operation in operations(described())
        if "{" in path and {"adminKey": []} in operation["security"]
    ]


@dataclass(frozen=True)
class Owned:
    """What the other organization has, by name of the parameter."""

    values: dict[str, str]
    """Path parameters and what they are."""
    before: dict[str, Any]
    """All that its administrator sees."""


READS = ("/api/containers", "/api/deployments", "/api/secrets", "/api/ssh-keys", "/api/domains",
         "/api/keys", "/api/registry-credentials")  # fmt: skip


async def seen(client: httpx.AsyncClient) -> dict[str, Any]:
    """Return all lists, without what time changes."""
    lists = {path: (await client.get(path)).json() for path in READS}
    return {
        path: [{**each, "updated_at": ""} for each in found] if isinstance(found, list) else found
        for path, found in lists.items()
    }


@contextlib.asynccontextmanager
async def entitled(facade: Facade, world: FacadeInstallation) -> AsyncIterator[httpx.AsyncClient]:
    """Create everything that an organization can have, and return its client."""
    await world.change_organization(
        billing={"containerSubscription": True, "tokenBilling": True},
        entitlements={"privateRegistries": True, "domainSuffixes": [f"{world.organization}.test"]},
    )
    async with facade.client(world.key) as client:

        async def known() -> bool:
            made = await client.post("/api/keys", json={"name": "own"})
            return made.status_code == 200

        await until(known)
        yield client


async def made(client: httpx.AsyncClient, world: FacadeInstallation) -> Owned:
    """Make one of everything."""
    ssh = described()["components"]["schemas"]["CreateSshKeyRequest"]["examples"][0]
    domain = f"api.{world.organization}.test"
    container = await client.post("/api/containers", json=world.body("theirs"))
    for path, body in (
        ("/api/secrets", {"name": "THEIR_SECRET", "value": "made-up"}),
        ("/api/ssh-keys", {**ssh, "name": "their-key"}),
    ):
        answer = await client.post(path, json=body)
        assert answer.status_code == 201, answer.text
    registered = await register(world, client, domain)
    assert registered.status_code == 201, registered.text
    login = {"username": "their-user", "token": "made-up"}
    assert (await client.put("/api/registry-credentials/ghcr", json=login)).status_code == 200
    key = await client.post("/api/keys", json={"name": "their-key"})
    assert (container.status_code, key.status_code) == (201, 200), container.text
    names = {"secrets": "THEIR_SECRET", "ssh-keys": "their-key"}
    values = {
        "container_id": container.json()["id"],
        "deployment_id": container.json()["deployment_id"],
        "domain": domain,
        "key": key.json()["key"],
        "number": str(key.json()["id"]),
        **names,
    }
    return Owned(values, await seen(client))


def named_in(path: str, values: dict[str, str]) -> dict[str, str]:
    """Return the values of a path's parameters; names are distinguished by what they name."""
    parts = path.split("/")
    return {
        part: values[parts[2] if part == "{name}" else part.strip("{}")]
        for part in parts
        if part.startswith("{")
    }


def path_of(path: str, values: dict[str, str]) -> str:
    """Fill the parameters of a path."""
    for part, value in named_in(path, values).items():
        path = path.replace(part, value)
    return path


def unknown_like(values: dict[str, str]) -> dict[str, str]:
    """Return values of the same form that nobody has."""
    return {
        "container_id": str(uuid.uuid4()),
        "deployment_id": str(uuid.uuid4()),
        "domain": "nobody.example.test",
        "key": generate(REGULAR_PREFIX),
        "number": "999999999",
        "secrets": "NOBODYS",
        "ssh-keys": "nobodys",
    }


def body_of(operation: dict[str, Any]) -> Any:
    """Return the example of an operation's body; None = it has none."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None:
        return None
    form = content["schema"]
    form = next((each for each in form.get("anyOf", ()) if "$ref" in each), form)
    return described()["components"]["schemas"][form["$ref"].split("/")[-1]]["examples"][0]


def told(answer: httpx.Response, *said: str) -> tuple[int, Any, list[str]]:
    """Return what a client learns: status, body, headers; without what it said itself."""
    text = answer.text.replace(answer.headers["x-request-id"], "")
    for value in said:
        text = text.replace(value, "…")
    return answer.status_code, text, sorted(answer.headers)


@pytest.mark.spec("2.2", "20.13")
@pytest.mark.attack("foreign-ids")
async def test_a_thing_of_another_organization_is_as_unknown_as_any(
    facade: Facade, world: FacadeInstallation, other_world: FacadeInstallation
) -> None:
    async with entitled(facade, other_world) as theirs, entitled(facade, world) as ours:
        owned = await made(theirs, other_world)
        nobodys = unknown_like(owned.values)
        tried = 0
        for method, path in with_parameters():
            parameters = {part.strip("{}") for part in path.split("/") if part.startswith("{")}
            if parameters <= OWN_NAMES:
                continue
            body = body_of(described()["paths"][path][method])
            answers = [
                await ours.request(method, path_of(path, values), json=body)
                for values in (owned.values, nobodys)
            ]
            assert [one.status_code for one in answers] == [404, 404], f"{method} {path}"
            assert answers[0].json()["code"] == "NOT_FOUND"
            foreign, nothing = (
                told(answer, *named_in(path, values).values())
                for answer, values in zip(answers, (owned.values, nobodys), strict=True)
            )
            assert foreign == nothing, f"{method} {path} tells them apart"
            tried += 1
        assert tried >= 20
        assert await seen(theirs) == owned.before


async def test_registries_have_one_name_and_each_organization_its_own_credentials(
    facade: Facade, world: FacadeInstallation, other_world: FacadeInstallation
) -> None:
    async with entitled(facade, other_world) as theirs, entitled(facade, world) as ours:
        owned = await made(theirs, other_world)
        assert (await ours.delete("/api/registry-credentials/ghcr")).status_code == 404
        login = {"username": "our-user", "token": "made-up"}
        assert (await ours.put("/api/registry-credentials/ghcr", json=login)).status_code == 200
        assert (await ours.delete("/api/registry-credentials/ghcr")).status_code == 204
        assert await seen(theirs) == owned.before


def named_in_bodies() -> set[str]:
    """Return every field of a body that is called like the name of a thing."""
    forms = described()["components"]["schemas"]
    used: set[str] = set()
    for _, _, operation in operations(described()):
        text = json.dumps(operation.get("requestBody", {}))
        used |= {name for name in forms if f'schemas/{name}"' in text}
    return {
        f"{form}.{field}"
        for form in used
        for field in forms[form].get("properties", {})
        if field == "key" or field.endswith(("_id", "_ids"))
    }


def test_every_field_of_a_body_that_names_a_thing_is_tried() -> None:
    assert named_in_bodies() - VALUES == set(NAMED_IN_BODIES)


@pytest.mark.spec("20.13")
@pytest.mark.attack("foreign-ids")
@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/api/containers", "replace_container_id"),
        ("/api/containers/validate", "container_id"),
        ("/api/containers/validate", "replace_container_id"),
        ("/api/containers/validate-name", "container_id"),
        ("/api/billing/usage/key", "key"),
        ("/api/keys/update", "key"),
    ],
)
async def test_a_body_that_names_a_thing_of_another_organization_learns_nothing(
    facade: Facade,
    world: FacadeInstallation,
    other_world: FacadeInstallation,
    path: str,
    field: str,
) -> None:
    async with entitled(facade, other_world) as theirs, entitled(facade, world) as ours:
        owned = await made(theirs, other_world)
        nobodys = unknown_like(owned.values)
        operation = described()["paths"][path]["post"]
        given = body_of(operation)
        if "repo" in given:
            given = {**given, "repo": world.repo}
        kind = field.removeprefix("replace_")
        answers = [
            await ours.post(path, json={**given, field: values[kind]})
            for values in (owned.values, nobodys)
        ]
        foreign, nothing = (
            told(answer, values[kind])
            for answer, values in zip(answers, (owned.values, nobodys), strict=True)
        )
        assert foreign == nothing
        assert foreign[0] in {400, 404}
        assert await seen(theirs) == owned.before


async def test_an_update_of_a_deployment_takes_no_container_of_another_organization(
    facade: Facade, world: FacadeInstallation, other_world: FacadeInstallation
) -> None:
    async with entitled(facade, other_world) as theirs, entitled(facade, world) as ours:
        owned = await made(theirs, other_world)
        own = (await ours.post("/api/containers", json=world.body("ours"))).json()
        path = f"/api/deployments/{own['deployment_id']}/update"
        foreign, nothing = [
            told(
                await ours.post(
                    path, json={"tag": "v1.1.0", "instance_ids": [values["container_id"]]}
                ),
                values["container_id"],
            )
            for values in (owned.values, unknown_like(owned.values))
        ]
        assert foreign == nothing
        assert foreign[0] == 400
        assert await seen(theirs) == owned.before
