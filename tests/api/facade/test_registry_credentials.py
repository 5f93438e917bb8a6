"""/api/registry-credentials."""

import json
from base64 import b64decode
from typing import Any

import pytest

from cloister_clients.kube.kinds import SECRET, of
from cloister_crds.kinds import RegistryCredential
from tests.support.programs.facade import Facade, FacadeInstallation
from tests.support.waiting import until

TOKEN = "made-up-token"
ACCOUNT = {
    "type": "service_account",
    "client_email": "puller@example.test",
    "private_key": "made-up-key",
}


@pytest.fixture
async def entitled(facade: Facade, world: FacadeInstallation) -> FacadeInstallation:
    """Return a world whose organization may use private registries, as the facade has seen."""
    await world.change_organization(entitlements={"privateRegistries": True})
    async with facade.client(world.key) as client:

        async def known() -> bool:
            return (await client.get("/api/registry-credentials")).status_code == 200

        await until(known, what="the entitlement")
    return world


async def login_of(world: FacadeInstallation, registry: str) -> dict[str, Any]:
    """Read what the kubelet would log in with."""
    credential = await world.kube.get(of(RegistryCredential), registry, world.namespace)
    reference = credential["spec"]["secretRef"]
    core = await world.kube.get(SECRET, reference["name"], world.namespace)
    assert core["type"] == "kubernetes.io/dockerconfigjson"
    found: dict[str, Any] = json.loads(b64decode(core["data"][reference["key"]]))["auths"]
    return found


@pytest.mark.spec("8.16", "8.19", "24.5")
async def test_the_life_of_credentials(facade: Facade, entitled: FacadeInstallation) -> None:
    async with facade.client(entitled.key) as client:
        path = "/api/registry-credentials"
        nothing = {"has_credentials": False, "expired": False}
        assert (await client.get(path)).json() == {
            "ghcr": nothing,
            "gcr": nothing,
            "dockerhub": nothing,
        }
        body = {"username": "ada", "token": TOKEN}
        put = await client.put(f"{path}/ghcr", json=body)
        assert put.status_code == 200, put.text
        assert put.json() == {
            "has_credentials": True,
            "username": "ada",
            "updated_at": put.json()["updated_at"],
            "expired": False,
        }
        assert (await client.get(path)).json()["ghcr"]["has_credentials"] is True
        assert (await login_of(entitled, "ghcr"))["ghcr.io"]["password"] == TOKEN

        again = await client.put(f"{path}/ghcr", json={**body, "username": "bob"})
        assert again.status_code == 200, again.text
        assert (await login_of(entitled, "ghcr"))["ghcr.io"]["username"] == "bob"

        for key in (ACCOUNT, json.dumps(ACCOUNT)):
            assert (await client.put(f"{path}/gcr", json={"key": key})).status_code == 200
        assert "gcr.io" in await login_of(entitled, "gcr")

        gone = await client.delete(f"{path}/ghcr")
        assert (gone.status_code, gone.content) == (204, b"")
        assert (await client.get(path)).json()["ghcr"] == nothing
        assert (await client.delete(f"{path}/ghcr")).status_code == 404
    told = facade.log.read_text() + str(await entitled.audit())
    objects = (await entitled.kube.list(of(RegistryCredential), entitled.namespace)).items
    assert TOKEN not in told + str(objects)


@pytest.mark.spec("8.16", "8.18", "8.19")
@pytest.mark.parametrize(
    ("registry", "body", "status", "field"),
    [
        ("quay", {"username": "a", "token": "t"}, 404, None),
        ("ghcr", {"username": "a"}, 400, "token"),
        ("ghcr", {"username": "a:b", "token": "t"}, 400, "username"),
        ("ghcr", {"key": ACCOUNT}, 400, "key"),
        ("gcr", {"key": "not json"}, 400, "key"),
        ("gcr", {"key": {"type": "authorized_user"}}, 400, "key"),
        ("gcr", {}, 400, "key"),
        ("dockerhub", {"username": "a", "token": "t", "more": 1}, 400, "more"),
    ],
)
async def test_what_are_no_credentials_is_refused(
    facade: Facade,
    entitled: FacadeInstallation,
    registry: str,
    body: dict[str, Any],
    status: int,
    field: str | None,
) -> None:
    async with facade.client(entitled.key) as client:
        answer = await client.put(f"/api/registry-credentials/{registry}", json=body)
        assert answer.status_code == status, answer.text
        if field is not None:
            assert answer.json()["details"][0]["field"] == field
        shown = (await client.get("/api/registry-credentials")).json()
        assert not any(each["has_credentials"] for each in shown.values())


@pytest.mark.spec("8.17")
async def test_without_the_entitlement_all_is_forbidden(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        body = {"username": "a", "token": "t"}
        for method, path, sent in (
            ("GET", "", None),
            ("PUT", "/ghcr", body),
            ("DELETE", "/ghcr", None),
        ):
            answer = await client.request(method, f"/api/registry-credentials{path}", json=sent)
            assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")
            assert "privateRegistries" in answer.json()["error"]
