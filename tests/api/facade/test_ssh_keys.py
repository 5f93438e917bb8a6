"""/api/ssh-keys."""

from typing import Any

import pytest

from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Container
from tests.support.programs.facade import Facade, FacadeInstallation

PUBLIC = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1mgm8ZSvTX0UuU1yV7c5vC6tbTfvpgYLfSyYpzdyz7 ada"


@pytest.mark.spec("3.3", "8.5", "8.6", "24.2", "24.8")
async def test_the_life_of_a_key(facade: Facade, world: FacadeInstallation) -> None:
    async with facade.client(world.key) as client:
        made = await client.post("/api/ssh-keys", json={"name": "ada", "public_key": PUBLIC + "\n"})
        assert made.status_code == 201, made.text
        record = made.json()
        used = {"used_by", "used_by_containers"}
        assert set(record) == {"id", "name", "key_type", "created_at", *used}
        assert (record["name"], record["key_type"], record["used_by"]) == ("ada", "ssh-ed25519", [])
        assert (await client.get("/api/ssh-keys")).json() == [record]
        twice = await client.post("/api/ssh-keys", json={"name": "ada", "public_key": PUBLIC})
        assert (twice.status_code, twice.json()["code"]) == (409, "CONFLICT")

        await client.post("/api/containers", json=world.body("web", debug=True))
        spec: dict[str, Any] = {"spec": {"sshKeys": ["ada"]}}
        await world.kube.merge_patch(of(Container), "web.debug", spec, world.namespace)
        refused = await client.delete("/api/ssh-keys/ada")
        assert (refused.status_code, refused.json()["used_by"]) == (409, ["web"])

        spec = {"spec": {"sshKeys": []}}
        await world.kube.merge_patch(of(Container), "web.debug", spec, world.namespace)
        gone = await client.delete("/api/ssh-keys/ada")
        assert (gone.status_code, gone.content) == (204, b"")
        assert (await client.get("/api/ssh-keys")).json() == []
        assert (await client.delete("/api/ssh-keys/ada")).status_code == 404


@pytest.mark.spec("8.5")
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"public_key": PUBLIC}, "name"),
        ({"name": "Ada", "public_key": PUBLIC}, "name"),
        ({"name": "ada", "public_key": "ssh-dss AAAA"}, "public_key"),
        ({"name": "ada", "public_key": "-----BEGIN OPENSSH PRIVATE KEY-----"}, "public_key"),
        ({"name": "ada", "public_key": f"{PUBLIC}\n{PUBLIC}"}, "public_key"),
        ({"name": "ada", "public_key": "ssh-ed25519 AAAA"}, "public_key"),
        ({"name": "ada", "public_key": PUBLIC.replace("ssh-ed25519", "ssh-rsa", 1)}, "public_key"),
    ],
)
async def test_wrong_bodies_are_refused_by_field(
    facade: Facade, world: FacadeInstallation, body: dict[str, Any], field: str
) -> None:
    async with facade.client(world.key) as client:
        answer = await client.post("/api/ssh-keys", json=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "BAD_REQUEST")
        assert answer.json()["details"][0]["field"] == field


async def test_another_organization_learns_nothing(
    facade: Facade, world: FacadeInstallation, other_world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        await client.post("/api/ssh-keys", json={"name": "ada", "public_key": PUBLIC})
    async with facade.client(other_world.key) as client:
        assert (await client.get("/api/ssh-keys")).json() == []
        there = await client.delete("/api/ssh-keys/ada")
        nowhere = await client.delete("/api/ssh-keys/no-such")
        assert there.status_code == nowhere.status_code == 404
        assert there.json()["error"] == nowhere.json()["error"]
