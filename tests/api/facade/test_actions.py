"""What each action does and returns in each state (spec 22.1).

No operator runs: the tests write the status as it would.
"""

import asyncio
from typing import Any

import httpx
import pytest

from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Container, HostnameClaim
from tests.support.programs.facade import COMMIT_OF_TAG, DOMAIN, Facade, FacadeInstallation
from tests.support.waiting import until

READY = {"phase": "ready", "currentTag": "v1.0.0", "currentCommit": COMMIT_OF_TAG}
UPDATING: dict[str, Any] = {
    **READY,
    "activeEnclave": "web-a-1",
    "update": {
        "enclave": "web-b-1",
        "uid": "0b",
        "revision": "b",
        "tag": "v1.1.0",
        "status": "started",
        "type": "blue_green",
    },
}
STAGED: dict[str, Any] = {
    **UPDATING,
    "update": {
        **UPDATING["update"],
        "status": "ready",
        "preview": "web.preview.acme.containers.example",
    },
}
FAILED_UPDATE: dict[str, Any] = {
    **UPDATING,
    "update": {**UPDATING["update"], "status": "failed", "message": "unhealthy"},
}
ATTEMPT: dict[str, Any] = {
    "phase": "failed",
    "update": {**UPDATING["update"], "status": "deploying", "type": "replace"},
}
STATES: dict[str, dict[str, Any]] = {
    "pending": {"phase": "pending"},
    "deploying": {"phase": "deploying"},
    "started": {"phase": "started"},
    "ready": READY,
    "failed": {"phase": "failed"},
    "stopping": {"phase": "stopping"},
    "stopped": {"phase": "stopped"},
    "update": UPDATING,
    "staged update": STAGED,
    "failed update": FAILED_UPDATE,
    "update of a failed one": ATTEMPT,
}
UPDATES = {state for state in STATES if "update" in state}
ALLOWED = {
    "relaunch": {"pending", "deploying", "started", "ready", "failed"} | UPDATES,
    "stop": set(STATES),
    "start": {"stopped"},
    "update/accept": {"staged update"},
    "update/cancel": UPDATES,
}


async def made(client: httpx.AsyncClient, world: FacadeInstallation, state: str) -> str:
    """Create a container and bring it to a state."""
    answer = await client.post("/api/containers", json=world.body("web"))
    assert answer.status_code == 201, answer.text
    path = str(answer.headers["location"])
    if state in {"stopping", "stopped"}:
        await client.post(f"{path}/stop")
    if "update" in state:
        enclave = await world.enclave("web", name="web-a-1")
        if STATES[state]["phase"] == "failed":
            await world.report_enclave(enclave, phase="Failed")
    await world.report("web", **STATES[state])
    word = STATES[state]["phase"]

    async def shown() -> bool:
        record = (await client.get(path)).json()
        told = "update_status" in record
        return record["status"] == word and told is ("update" in state)

    await until(shown, what=f"state {state}")
    return path


@pytest.mark.spec("20.9", "21.7", "22.1")
@pytest.mark.lifecycle("relaunch")
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("action", ALLOWED)
async def test_each_action_in_each_state(
    facade: Facade, world: FacadeInstallation, action: str, state: str
) -> None:
    async with facade.client(world.key) as client:
        path = await made(client, world, state)
        answer = await client.post(f"{path}/{action}")
        if state in ALLOWED[action]:
            assert answer.status_code == (204 if action == "update/cancel" else 200), answer.text
        else:
            assert answer.status_code == 409
            assert answer.json()["code"] == "CONFLICT"
            assert action.rsplit("/", maxsplit=1)[-1] in answer.json()["error"]
            assert ("update" if "update" in state else state) in answer.json()["error"]


@pytest.mark.spec("6.10", "22.6")
@pytest.mark.lifecycle("delete")
@pytest.mark.parametrize("state", STATES)
async def test_delete_works_in_each_state(
    facade: Facade, world: FacadeInstallation, state: str
) -> None:
    async with facade.client(world.key) as client:
        path = await made(client, world, state)
        assert (await client.delete(path)).status_code == 204
        assert (await client.get(path)).status_code == 404
        for action in ALLOWED:
            gone = await client.post(f"{path}/{action}")
            assert (gone.status_code, gone.json()["code"]) == (404, "NOT_FOUND"), action


@pytest.mark.spec("22.1")
async def test_a_stop_of_what_stops_changes_nothing(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        path = await made(client, world, "stopping")
        before = await world.container("web")
        assert (await client.post(f"{path}/stop")).json()["status"] == "stopping"
        assert await world.container("web") == before
        await world.report("web", phase="stopped")

        async def stopped() -> bool:
            return bool((await client.get(path)).json()["status"] == "stopped")

        await until(stopped, what="the status")
        before = await world.container("web")
        assert (await client.post(f"{path}/stop")).json()["status"] == "stopped"
        assert await world.container("web") == before
        refused = await client.post(f"{path}/stop", json={"force": True})
        assert refused.status_code == 400
        assert refused.json()["details"][0]["field"] == "force"


@pytest.mark.spec("6.7", "21.7")
async def test_a_relaunch_changes_tag_commit_and_the_whole_variable_set(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        body = world.body("web", variables={"GREETING": "one", "OTHER": "two"})
        path = (await client.post("/api/containers", json=body)).headers["location"]
        await world.report("web", **READY)
        before = await world.container("web")
        change = {"tag": "v1.1.0", "variables": {"GREETING": "three"}}
        answer = await client.post(f"{path}/relaunch", json=change)
        assert answer.status_code == 200, answer.text
        record = answer.json()
        assert record["id"] == path.rsplit("/", 1)[-1]
        assert record["status"] == "ready"
        assert record["current_tag"] == "v1.0.0"
        assert record["variables"] == {"GREETING": "three"}
        assert (record["update_tag"], record["update_status"]) == ("v1.1.0", "pending")
        update = (await client.get(f"{path}/update")).json()
        assert update["has_update"] is True
    after = await world.container("web")
    assert before is not None
    assert after is not None
    assert after["spec"]["tag"] == "v1.1.0"
    assert after["spec"]["commit"] == world.repository.git("rev-parse", "v1.1.0")
    assert after["spec"]["relaunch"]
    assert before["spec"].get("relaunch") != after["spec"]["relaunch"]


@pytest.mark.spec("21.4", "22.1")
@pytest.mark.lifecycle("relaunch")
async def test_a_relaunch_of_a_failed_container_shows_as_deploying_update(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        path = await made(client, world, "failed")
        record = (await client.post(f"{path}/relaunch", json={})).json()
        assert record["status"] == "deploying"
        assert record["update_status"] == "deploying"
        assert (await client.get(path)).json()["status"] == "deploying"
        assert record["update_type"] == "replace"


async def test_a_relaunch_to_a_wrong_tag_changes_nothing(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        path = await made(client, world, "ready")
        before = await world.container("web")
        answer = await client.post(f"{path}/relaunch", json={"tag": "v9"})
        assert answer.status_code == 400
        assert answer.json()["details"][0]["code"] == "TagNotFound"
    assert await world.container("web") == before


@pytest.mark.spec("5.2", "6.8", "6.9")
@pytest.mark.lifecycle("start", "stop")
async def test_stop_and_start(facade: Facade, world: FacadeInstallation) -> None:
    async with facade.client(world.key) as client:
        path = await made(client, world, "ready")
        stopped = (await client.post(f"{path}/stop")).json()
        assert stopped["status"] == "stopping"
        await world.report("web", phase="stopped")
        started = await until(lambda: _start(client, path), what="start to be allowed")
        assert started is not None
        assert started["status"] == "deploying"
    container = await world.container("web")
    assert container is not None
    assert container["spec"]["state"] == "Running"
    assert container["spec"]["tag"] == "v1.1.0"


async def _start(client: httpx.AsyncClient, path: str) -> dict[str, Any] | None:
    answer = await client.post(f"{path}/start", json={"tag": "v1.1.0"})
    return answer.json() if answer.status_code == 200 else None


@pytest.mark.spec("6.12", "22.1", "22.2")
@pytest.mark.lifecycle("accept")
async def test_accept_promotes_the_staged_update_and_returns_the_active_one(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        path = await made(client, world, "staged update")
        record = (await client.get(path)).json()
        assert record["preview_domain"] == "web.preview.acme.containers.example"
        async with asyncio.TaskGroup() as tasks:
            accepting = tasks.create_task(client.post(f"{path}/update/accept"))

            async def promoted() -> bool:
                item = await world.container("web")
                return item is not None and item["spec"].get("promote") == "b"

            await until(promoted, what="the promotion in spec")
            await world.report(
                "web", **READY | {"currentTag": "v1.1.0", "activeEnclave": "web-b-1"}, update=None
            )
        answer = accepting.result()
        assert answer.status_code == 200, answer.text
        assert answer.json()["current_tag"] == "v1.1.0"
        assert "update_status" not in answer.json()
        assert (await client.get(f"{path}/update")).json() == {"has_update": False}


@pytest.mark.spec("22.2")
async def test_accept_without_an_operator_returns_after_a_timeout(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        path = await made(client, world, "staged update")
        requested = {"spec": {"tag": STAGED["update"]["tag"]}}
        await world.kube.merge_patch(of(Container), "web", requested, world.namespace)
        await world.report("web", **STAGED)

        async def shown() -> bool:
            record = (await client.get(path)).json()
            return bool(record["requested_tag"] == record["update_tag"] == "v1.1.0")

        await until(shown, what="the update that was requested")
        answer = await client.post(f"{path}/update/accept")
        assert answer.status_code == 200, answer.text
        assert answer.json()["update_status"] == "ready"
    item = await world.container("web")
    assert item is not None
    assert item["spec"]["promote"] == "b"


@pytest.mark.spec("3.5", "6.13", "21.7", "22.1", "22.3")
@pytest.mark.lifecycle("cancel")
async def test_cancel_writes_the_serving_request_back(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        path = await made(client, world, "ready")
        before = await world.container("web")
        assert before is not None
        await world.enclave("web", name="web-a-1")
        change = {"tag": "v1.1.0", "variables": {"GREETING": "new"}}
        assert (await client.post(f"{path}/relaunch", json=change)).status_code == 200
        await world.report("web", **UPDATING)
        item = await world.container("web")
        assert item is not None
        # The facade has to know what serves; its cache may be a moment behind the status.
        seen = {"X-Consistency-Token": item["metadata"]["resourceVersion"]}
        cancelled = await client.post(f"{path}/update/cancel", headers=seen)
        assert (cancelled.status_code, cancelled.content) == (204, b"")
    after = await world.container("web")
    assert after is not None
    assert after["spec"] == before["spec"]


async def test_debug_can_be_toggled_unless_the_other_name_is_taken(
    facade: Facade, world: FacadeInstallation
) -> None:
    hostname = f"web.debug.{world.organization}.{DOMAIN}"
    holder = {"namespace": world.namespace, "name": "of-kubectl"}
    claim = {"metadata": {"name": hostname}, "spec": {"holder": holder}}
    async with facade.client(world.key) as client:
        path = await made(client, world, "ready")
        await world.kube.create(of(HostnameClaim), claim)
        refused = await client.post(f"{path}/relaunch", json={"debug": True})
        assert refused.status_code == 409
        assert f"the host name {hostname} is taken" in refused.json()["error"]
        await world.kube.delete(of(HostnameClaim), hostname)
        answer = await client.post(f"{path}/relaunch", json={"debug": True})
        assert answer.status_code == 200, answer.text
        assert answer.json()["debug"] is True
        other = await client.post("/api/containers", json=world.body("web", debug=True))
        assert other.status_code == 409


@pytest.mark.spec("21.6")
async def test_a_debug_container_becomes_a_production_one(
    facade: Facade, world: FacadeInstallation
) -> None:
    public = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ3z8mBkXkKGZLM2uQXVZ0Y1x1l6Rr2m9rC6QJXgHk0b"
    more = {"debug": True, "ssh_keys": ["ada"], "disable_cc_mode": True}
    async with facade.client(world.key) as client:
        key = {"name": "ada", "public_key": public}
        assert (await client.post("/api/ssh-keys", json=key)).status_code == 201
        paths = []
        for name in ("one", "two"):
            answer = await client.post("/api/containers", json=world.body(name, **more))
            assert answer.status_code == 201, answer.text
            paths.append(answer.headers["location"])
        answer = await client.post(f"{paths[0]}/relaunch", json={"disable_cc_mode": False})
        shown = answer.json()
        assert (shown["debug"], shown["disable_cc_mode"], shown["ssh_keys"]) == (
            True,
            False,
            ["ada"],
        )
        for path in paths:
            answer = await client.post(f"{path}/relaunch", json={"debug": False})
            assert answer.status_code == 200, answer.text
            shown = answer.json()
            assert (shown["debug"], shown["disable_cc_mode"], shown["ssh_keys"]) == (
                False,
                False,
                [],
            )


@pytest.mark.spec("20.22")
async def test_what_a_gitops_manager_owns_is_left_to_it(
    facade: Facade, world: FacadeInstallation
) -> None:
    spec = {"repo": world.repo, "tag": "v1.0.0"}
    body = {"metadata": {"name": "flux"}, "spec": spec}
    await world.apply_as("kustomize-controller", body)
    async with facade.client(world.key) as client:

        async def listed() -> dict[str, Any] | None:
            found = (await client.get("/api/containers")).json()
            return found[0] if found else None

        record = await until(listed)
        assert record is not None
        path = f"/api/containers/{record['id']}"
        answer = await client.post(f"{path}/relaunch", json={"tag": "v1.1.0"})
        assert answer.status_code == 409
        assert "kustomize-controller" in answer.json()["error"]
        assert "tag" in answer.json()["error"]
        again = await client.post(f"{path}/relaunch")
        assert again.status_code == 200, again.text
        kept = await client.delete(path)
        assert (kept.status_code, kept.json()["code"]) == (409, "CONFLICT")
        assert "kustomize-controller" in kept.json()["error"]
        assert "delete it in its repository" in kept.json()["error"]
        assert (await client.get(path)).status_code == 200
        await world.apply_as("kustomize-controller", {**body, "spec": {**spec, "state": "Running"}})
        going_on = await client.post(f"{path}/stop")
        assert going_on.status_code == 409
        assert "kustomize-controller manages state" in going_on.json()["error"]


@pytest.mark.spec("3.6", "6.1", "22.16")
async def test_a_lapsed_subscription_stops_new_work_alone(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        path = await made(client, world, "ready")
        await world.change_organization(billing={"containerSubscription": False})

        async def refused() -> bool:
            answer = await client.post(f"{path}/relaunch")
            return answer.status_code == 402 and answer.json()["code"] == "PAYMENT_REQUIRED"

        await until(refused)
        created = await client.post("/api/containers", json=world.body("other"))
        assert created.status_code == 402
        assert (await client.get(path)).status_code == 200
        assert len((await client.get("/api/containers")).json()) == 1
        assert (await client.post(f"{path}/stop")).status_code == 200
        await world.report("web", phase="stopped")

        async def stopped() -> bool:
            return bool((await client.get(path)).json()["status"] == "stopped")

        await until(stopped, what="the status")
        started = await client.post(f"{path}/start")
        assert (started.status_code, started.json()["code"]) == (402, "PAYMENT_REQUIRED")
        assert (await client.delete(path)).status_code == 204
