"""replace_container_id: the old container goes when the new one has taken over.

No operator runs: the tests write the status as it would.
"""

import httpx
import pytest

from tests.support.programs.facade import Facade, FacadeInstallation
from tests.support.waiting import until

SERVES = {"phase": "ready", "currentTag": "v1.0.0", "activeEnclave": "web.2-a-1"}


async def made(
    client: httpx.AsyncClient, world: FacadeInstallation, **more: object
) -> httpx.Response:
    """Create the container web."""
    return await client.post("/api/containers", json=world.body("web", **more))


def identity(answer: httpx.Response) -> str:
    """Return the identifier of what was created."""
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


@pytest.mark.spec("21.19")
@pytest.mark.lifecycle("replaces")
async def test_the_old_one_is_deleted_once_the_new_one_serves(
    facade: Facade, world: FacadeInstallation
) -> None:
    await world.change_organization(limits={"containers": 1})
    async with facade.client(world.key) as client:
        old = identity(await made(client, world))
        new = identity(await made(client, world, replace_container_id=old))
        container = await world.container("web.2")
        assert container is not None
        assert (container["spec"]["name"], container["spec"]["replaces"]) == ("web", "web")
        assert await world.claims() == [], "the old one still serves at its name"
        listed = (await client.get("/api/containers")).json()
        assert [(each["id"], each["replace_container_id"]) for each in listed] == [(new, old)]
        whole = {"include": "replaced"}
        both = (await client.get("/api/containers", params=whole)).json()
        assert {each["id"]: each.get("replaced_by") for each in both} == {old: new, new: None}
        first = await client.get("/api/containers", params={**whole, "limit": 1})
        rest = (await client.get(first.links["next"]["url"])).json()
        assert {each["id"] for each in (*first.json(), *rest)} == {old, new}
        assert await counts(client) == 1
        assert await counts(client, **whole) == 2
        (deployment,) = (await client.get("/api/deployments")).json()
        update = f"/api/deployments/{deployment['id']}/update"
        targets = (await client.post(update, json={"tag": "v1.0.0"})).json()["results"]
        assert [each["container_id"] for each in targets] == [new]

        await world.report("web.2", phase="started")
        twice = await made(client, world, replace_container_id=old)
        assert twice.status_code == 409
        assert "is being replaced by web already" in twice.json()["error"]
        found = await client.get(f"/api/containers/{old}")
        assert (found.status_code, found.json()["replaced_by"]) == (200, new)

        await world.report("web.2", **SERVES)

        async def gone() -> bool:
            return (await client.get(f"/api/containers/{old}")).status_code == 404

        await until(gone, within=60, what="the end of the old container")
        assert (await client.get(f"/api/containers/{new}")).json()["name"] == "web"
    assert await world.container("web") is None


@pytest.mark.spec("21.19")
async def test_when_the_new_one_fails_its_deletion_brings_the_old_one_back(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        old = identity(await made(client, world))
        new = identity(await made(client, world, replace_container_id=old))
        await world.report("web.2", phase="failed", message="unhealthy: exit 1")

        async def failed() -> bool:
            (shown,) = (await client.get("/api/containers")).json()
            assert (shown["id"], shown["replace_container_id"]) == (new, old)
            return bool(shown.get("error_message") == "unhealthy: exit 1")

        await until(failed, what="the failure in the list")
        assert (await client.delete(f"/api/containers/{new}")).status_code == 204
        (back,) = (await client.get("/api/containers")).json()
        assert back["id"] == old
        assert "replaced_by" not in back
        assert await counts(client) == 1


async def counts(client: httpx.AsyncClient, **query: str) -> int:
    """Return how many containers the only deployment has."""
    (deployment,) = (await client.get("/api/deployments", params=query)).json()
    return int(deployment["instance_count"])


async def test_a_retry_finds_its_own_work(facade: Facade, world: FacadeInstallation) -> None:
    async with facade.client(world.key) as client:
        old = identity(await made(client, world))
        body = world.body("web", replace_container_id=old)
        headers = {"Idempotency-Key": "once"}
        answers = [
            await client.post("/api/containers", json=body, headers=headers) for _ in range(2)
        ]
    assert len({identity(answer) for answer in answers}) == 1
    assert len(await world.containers()) == 2


async def test_what_cannot_be_replaced_is_refused(
    facade: Facade, world: FacadeInstallation, other_world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client, facade.client(other_world.key) as elsewhere:
        foreign = identity(await made(elsewhere, other_world))
        for unknown in ("00000000-0000-4000-8000-000000000000", "web", foreign):
            answer = await made(client, world, replace_container_id=unknown)
            assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
        owned = {
            "apiVersion": "cloister.dev/v1alpha1",
            "kind": "Container",
            "metadata": {"name": "owned", "namespace": world.namespace},
            "spec": {"repo": world.repo, "tag": "v1.0.0"},
        }
        await world.apply_as("kustomize-controller", owned)

        async def seen() -> str:
            listed = (await client.get("/api/containers")).json()
            return "".join(each["id"] for each in listed if each["name"] == "owned")

        managed = await until(seen, what="the container of the repository")
        answer = await made(client, world, replace_container_id=managed)
        assert answer.status_code == 409
        assert "kustomize-controller" in answer.json()["error"]
        assert "spec.replaces" in answer.json()["error"]
    assert [each["metadata"]["name"] for each in await world.containers()] == ["owned"]


async def test_what_was_replaced_with_kubectl_is_left_to_the_user(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        old = identity(await made(client, world))
        body = {
            "apiVersion": "cloister.dev/v1alpha1",
            "kind": "Container",
            "metadata": {"name": "new", "namespace": world.namespace},
            "spec": {"repo": world.repo, "tag": "v1.0.0", "replaces": "web"},
        }
        await world.apply_as("kubectl", body)
        await world.report("new", **SERVES)
        # One that was replaced over REST later is deleted in the same round, so that the wait ends.
        other = identity(await client.post("/api/containers", json=world.body("other")))
        third = world.body("third", replace_container_id=other)
        identity(await client.post("/api/containers", json=third))
        await world.report("third", **SERVES)

        async def gone() -> bool:
            return (await client.get(f"/api/containers/{other}")).status_code == 404

        await until(gone, within=60, what="the end of the container that REST replaced")
        assert (await client.get(f"/api/containers/{old}")).status_code == 200
