"""What a body leaves out: the release is what serves or last served (spec 22.9, 22.10).

No operator runs: the tests write the status as it would. Each cell of the manual's table is in
`tests/unit/lifecycle/test_release_table.py`.
"""

import asyncio
from typing import Any

import httpx
import pytest

from tests.support.faults.fault_kinds import HeldWrites
from tests.support.faults.faulty_proxy import FaultyProxy
from tests.support.programs.facade import (
    COMMIT_OF_TAG,
    Facade,
    FacadeInstallation,
    config_file,
)
from tests.support.waiting import until

PUBLIC = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1mgm8ZSvTX0UuU1yV7c5vC6tbTfvpgYLfSyYpzdyz7 ada"
SERVES = {
    "phase": "ready",
    "currentTag": "v1.0.0",
    "currentCommit": COMMIT_OF_TAG,
    "requestedTag": "v1.0.0",
    "activeEnclave": "web-a-1",
}
UPDATE = {"enclave": "web-b-1", "uid": "0b", "revision": "b", "tag": "v1.1.0", "message": "refused"}


async def seen(client: httpx.AsyncClient, world: FacadeInstallation, **status: Any) -> None:
    """Write a status, and wait until the facade's cache shows it."""
    await world.report("web", **status)
    item = await world.container("web")
    assert item is not None
    path, etag = f"/api/containers/{item['metadata']['uid']}", item["metadata"]["resourceVersion"]

    async def shown() -> bool:
        return bool((await client.get(path)).headers.get("etag") == f'"{etag}"')

    await until(shown, every=0.02, what=f"version {etag} of the container")


async def spec_of(world: FacadeInstallation) -> dict[str, Any]:
    """Return the spec of the container as the server has it."""
    item = await world.container("web")
    assert item is not None
    spec: dict[str, Any] = item["spec"]
    return spec


async def updated(client: httpx.AsyncClient, world: FacadeInstallation, status: str) -> str:
    """Bring an update of v1.0.0 to v1.1.0 to a status, and return the container's path."""
    answer = await client.post("/api/containers", json=world.body("web"))
    assert answer.status_code == 201, answer.text
    path = str(answer.headers["location"])
    await world.enclave("web", name="web-a-1")
    await seen(client, world, **SERVES)
    change = {"tag": "v1.1.0", "variables": {"GREETING": "new"}}
    assert (await client.post(f"{path}/relaunch", json=change)).status_code == 200
    update = {**UPDATE, "status": status, "type": "blue_green"}
    await seen(client, world, **SERVES | {"requestedTag": "v1.1.0"}, update=update)
    return path


@pytest.mark.spec("22.10")
@pytest.mark.parametrize("status", ["started", "ready", "failed"])
async def test_a_stop_ends_an_update_and_start_brings_back_what_served(
    facade: Facade, world: FacadeInstallation, status: str
) -> None:
    async with facade.client(world.key) as client:
        path = await updated(client, world, status)
        assert (await client.get(path)).json()["requested_tag"] == "v1.1.0"
        stopped = (await client.post(f"{path}/stop")).json()
        assert (stopped["status"], stopped["requested_tag"]) == ("stopping", "v1.0.0")
        spec = await spec_of(world)
        assert (spec["state"], spec["tag"], spec.get("variables", [])) == ("Stopped", "v1.0.0", [])
        await seen(client, world, **SERVES | {"phase": "stopped", "activeEnclave": ""}, update=None)
        started = (await client.post(f"{path}/start")).json()
        assert (started["status"], started["requested_tag"]) == ("deploying", "v1.0.0")
    assert (await spec_of(world))["tag"] == "v1.0.0"


@pytest.mark.spec("22.9")
@pytest.mark.parametrize("status", ["started", "ready", "failed"])
async def test_a_relaunch_without_a_tag_is_of_what_serves(
    facade: Facade, world: FacadeInstallation, status: str
) -> None:
    async with facade.client(world.key) as client:
        path = await updated(client, world, status)
        record = (await client.post(f"{path}/relaunch", json={})).json()
    assert (record["requested_tag"], record["update_tag"]) == ("v1.0.0", "v1.0.0")
    assert "error_message" not in record
    spec = await spec_of(world)
    assert (spec["tag"], spec.get("variables", [])) == ("v1.0.0", [])
    assert spec["commit"] == world.repository.git("rev-parse", "v1.0.0")


@pytest.mark.parametrize("action", ["relaunch", "start"])
async def test_what_names_no_tag_keeps_the_commit_of_a_tag_that_moved(
    facade: Facade, world: FacadeInstallation, action: str
) -> None:
    async with facade.client(world.key) as client:
        path = (await client.post("/api/containers", json=world.body("web"))).headers["location"]
        await world.enclave("web", name="web-a-1")
        status = SERVES
        if action == "start":
            await client.post(f"{path}/stop")
            status = SERVES | {"phase": "stopped", "activeEnclave": ""}
        kept = world.repository.git("rev-parse", "v1.0.0")
        await seen(client, world, **status | {"currentCommit": kept})
        moved = world.repository.release("v1.0.0", config_file(world.image) + b"# moved\n")
        answer = await client.post(f"{path}/{action}", json={"variables": {"GREETING": "new"}})
        assert answer.status_code == 200, answer.text
        (warning,) = answer.json()["warnings"]
        assert (warning["field"], warning["code"]) == ("tag", "TagMoved")
        assert kept in warning["message"]
        assert moved in warning["message"]
        assert (await spec_of(world))["commit"] == kept
        condition = {
            "type": "TagMoved",
            "status": "True",
            "reason": "TagMoved",
            "message": "Tag v1.0.0 moved.",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        await seen(client, world, **SERVES | {"currentCommit": kept}, conditions=[condition])
        shown = (await client.get(path)).json()["warnings"]
        assert [each["message"] for each in shown] == ["Tag v1.0.0 moved."]
        named = await client.post(f"{path}/relaunch", json={"tag": "v1.0.0"})
        assert named.status_code == 200, named.text
        assert (await spec_of(world))["commit"] == moved


async def test_a_release_that_never_served_is_not_kept_when_its_tag_moved(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        path = (await client.post("/api/containers", json=world.body("web"))).headers["location"]
        await seen(client, world, phase="failed", currentTag="v1.0.0", requestedTag="v1.0.0")
        kept = (await spec_of(world))["commit"]
        moved = world.repository.release("v1.0.0", config_file(world.image) + b"# moved\n")
        refused = await client.post(f"{path}/relaunch", json={})
        assert refused.status_code == 400
        (problem,) = refused.json()["details"]
        assert (problem["field"], problem["code"]) == ("tag", "TagMoved")
        assert kept in problem["message"]
        assert moved in problem["message"]
        named = await client.post(f"{path}/relaunch", json={"tag": "v1.0.0"})
        assert named.status_code == 200, named.text


@pytest.mark.spec("22.9")
async def test_a_second_release_seconds_later_keeps_what_the_first_one_bound(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        for name in ("API_KEY", "NEW_KEY"):
            await client.post("/api/secrets", json={"name": name, "value": "x"})
        path = await updated(client, world, "started")
        change = {"tag": "v1.0.0", "secrets": ["NEW_KEY", "API_KEY"]}
        record = (await client.post(f"{path}/relaunch", json=change)).json()
    assert record["secrets"] == ["NEW_KEY", "API_KEY"]
    assert record["variables"] == {"GREETING": "new"}
    assert record["requested_tag"] == "v1.0.0"


@pytest.mark.spec("7.3")
async def test_a_cancel_restores_staging_that_a_relaunch_set(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        path = (await client.post("/api/containers", json=world.body("web"))).headers["location"]
        await world.enclave("web", name="web-a-1")
        await seen(client, world, **SERVES, ownStaging=False)
        change = {"tag": "v1.1.0", "staging": True}
        assert (await client.post(f"{path}/relaunch", json=change)).json()["staging"] is True
        spec = await spec_of(world)
        assert (spec["staging"], spec.get("relaunchStaging")) == (True, None)
        update = {**UPDATE, "status": "ready", "type": "blue_green"}
        await seen(client, world, **SERVES | {"requestedTag": "v1.1.0"}, update=update)
        assert (await client.post(f"{path}/update/cancel")).status_code == 204
        assert (await client.get(path)).json()["staging"] is False
        assert (await spec_of(world))["staging"] is False
        await seen(client, world, **SERVES, update=None)
        again = (await client.post(f"{path}/relaunch", json=change)).json()
        assert again["staging"] is True
        await seen(client, world, **SERVES, update=None, ownStaging=True)
        later = (await client.post(f"{path}/relaunch", json={"tag": "v1.0.0"})).json()
        assert later["staging"] is True


async def test_what_serves_keeps_its_secrets_and_keys_until_an_update_is_promoted(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        await client.post("/api/secrets", json={"name": "API_KEY", "value": "x"})
        await client.post("/api/ssh-keys", json={"name": "ada", "public_key": PUBLIC})
        body = world.body("web", debug=True)
        path = (await client.post("/api/containers", json=body)).headers["location"]
        served = {"secrets": ["API_KEY"], "sshKeys": ["ada"]}
        await world.report("web.debug", **SERVES, secrets=[], servedBindings=served)
        for resource in ("/api/secrets/API_KEY", "/api/ssh-keys/ada"):
            refused = await client.delete(resource)
            assert (refused.status_code, refused.json().get("used_by")) == (409, ["web"])
            assert "web" in refused.json()["error"]
        await world.report("web.debug", **SERVES, secrets=[], servedBindings=None)
        for resource in ("/api/secrets/API_KEY", "/api/ssh-keys/ada"):
            assert (await client.delete(resource)).status_code == 204
        assert (await client.delete(path)).status_code == 204


@pytest.mark.spec("22.11")
async def test_what_is_followed_is_written_into_spec_when_it_ends(
    facade: Facade, world: FacadeInstallation
) -> None:
    commit = world.repository.git("rev-parse", "v1.1.0")
    latest = {"tag": "v1.1.0", "commit": commit, "publishedAt": "2100-01-01T00:00:00Z"}
    follows = {**latest, "comparedTo": "v1.0.0", "followed": True}
    serves = SERVES | {"currentTag": "v1.1.0", "latestRelease": follows}
    async with facade.client(world.key) as client:
        path = (await client.post("/api/containers", json=world.body("web"))).headers["location"]
        await client.post(f"{path}/auto-update", json={"auto_update": True})
        await seen(client, world, **serves)
        again = (await client.post(f"{path}/relaunch", json={"variables": {}})).json()
        assert (again["auto_update"], again["requested_tag"]) == (True, "v1.1.0")
        assert (await spec_of(world))["tag"] == "v1.0.0"
        ended = (await client.post(f"{path}/auto-update", json={"auto_update": False})).json()
        assert (ended["auto_update"], ended["requested_tag"]) == (False, "v1.1.0")
    spec = await spec_of(world)
    assert (spec["tag"], spec["commit"]) == ("v1.1.0", commit)


@pytest.mark.spec("21.4")
async def test_a_failed_start_shows_what_was_tried(
    facade: Facade, world: FacadeInstallation
) -> None:
    rests = SERVES | {"phase": "stopped", "activeEnclave": ""}
    async with facade.client(world.key) as client:
        path = (await client.post("/api/containers", json=world.body("web"))).headers["location"]
        await seen(client, world, **SERVES)
        await client.post(f"{path}/stop")
        await seen(client, world, **rests)
        await client.post(f"{path}/start", json={"tag": "v1.1.0"})
        tried = {"phase": "failed", "message": "web is unhealthy", "requestedTag": "v1.1.0"}
        await seen(client, world, **rests | tried)
        record = (await client.get(path)).json()
        assert (record["current_tag"], record["requested_tag"]) == ("v1.0.0", "v1.1.0")
        assert record["error_message"] == "web is unhealthy"
        assert (record["update_tag"], record["update_status"]) == ("v1.1.0", "failed")
        shown = (await client.get(f"{path}/update")).json()
        assert (shown["has_update"], shown["update_status"]) == (True, "failed")
        assert (await client.post(f"{path}/update/cancel")).status_code == 204
        spec = await spec_of(world)
        assert (spec["tag"], spec.get("state", "Running")) == ("v1.0.0", "Running")
        await client.post(f"{path}/relaunch", json={"tag": "v1.1.0"})
        await seen(client, world, **rests | tried)
        answer = (await client.post(f"{path}/relaunch", json={"tag": "v1.1.0"})).json()
        assert (answer["status"], answer["update_status"]) == ("deploying", "deploying")
        assert "error_message" not in answer
        assert (await client.get(path)).json() == answer
        await seen(client, world, **rests | tried)
        await client.post(f"{path}/stop")
    assert (await spec_of(world))["tag"] == "v1.0.0"


@pytest.mark.spec("21.4")
async def test_a_relaunch_of_what_is_deploying_shows_the_new_tag(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        path = (await client.post("/api/containers", json=world.body("web"))).headers["location"]
        await seen(client, world, phase="deploying", currentTag="v1.0.0", requestedTag="v1.0.0")
        record = (await client.post(f"{path}/relaunch", json={"tag": "v1.1.0"})).json()
        assert (record["current_tag"], record["requested_tag"]) == ("v1.1.0", "v1.1.0")
        assert (await client.get(path)).json() == record


@pytest.mark.spec("22.10")
async def test_a_stop_works_where_a_gitops_manager_owns_the_tag(
    facade: Facade, world: FacadeInstallation
) -> None:
    commit = world.repository.git("rev-parse", "v1.0.0")
    spec = {"repo": world.repo, "tag": "v1.0.0", "commit": commit, "host": world.host}
    await world.apply_as("kustomize-controller", {"metadata": {"name": "web"}, "spec": spec})
    async with facade.client(world.key) as client:

        async def listed() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = (await client.get("/api/containers")).json()
            return found

        found = await until(listed, what="the container")
        path = f"/api/containers/{found[0]['id']}"
        await world.enclave("web", name="web-a-1")
        changed = {
            "metadata": {"name": "web"},
            "spec": {**spec, "tag": "v1.1.0", "commit": "c" * 40},
        }
        await world.apply_as("kustomize-controller", changed)
        update = {**UPDATE, "status": "failed", "type": "blue_green"}
        await seen(client, world, **SERVES | {"requestedTag": "v1.1.0"}, update=update)
        assert (await client.post(f"{path}/stop")).status_code == 200
    spec = await spec_of(world)
    assert (spec["state"], spec["tag"]) == ("Stopped", "v1.1.0")


@pytest.mark.spec("22.9")
@pytest.mark.parametrize(
    ("action", "status"), [("stop", 200), ("update/cancel", 409), ("relaunch", 409)]
)
async def test_an_update_that_was_promoted_meanwhile_is_not_taken_back(
    proxied: Facade,
    proxy: FaultyProxy,
    world: FacadeInstallation,
    action: str,
    status: int,
) -> None:
    async with proxied.client(world.key) as client:
        path = await updated(client, world, "started")
        await world.enclave("web", name="web-b-1")
        held = HeldWrites(None, lambda request: request.kind == "containers")

        async def caught() -> bool:
            return bool(held.caught)

        proxy.faults = (held,)
        sending = asyncio.create_task(client.post(f"{path}/{action}"))
        try:
            await until(caught, every=0.01, what=f"the write of {action}")
            serves = SERVES | {"currentTag": "v1.1.0", "requestedTag": "v1.1.0"}
            await world.report("web", **serves | {"activeEnclave": "web-b-1"}, update=None)
        finally:
            held.release()
            proxy.faults = ()
        response = await sending
    assert response.status_code == status, response.text
    spec = await spec_of(world)
    assert (spec["tag"], spec["variables"]) == ("v1.1.0", [{"name": "GREETING", "value": "new"}])
