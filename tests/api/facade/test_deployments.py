"""/api/deployments: counts, the default of staging, updates of all containers of a repository."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Container, Deployment
from cloister_crds.names import deployment_name
from tests.support.faults.fault_kinds import HeldEvents
from tests.support.faults.faulty_proxy import FaultyProxy
from tests.support.programs.facade import COMMIT_OF_TAG, Facade, FacadeInstallation, start_facade
from tests.support.waiting import until

READY = {"phase": "ready", "currentTag": "v1.0.0", "currentCommit": COMMIT_OF_TAG}
UNKNOWN = "00000000-0000-4000-8000-000000000000"


async def made(
    client: httpx.AsyncClient, world: FacadeInstallation, name: str, **status: Any
) -> str:
    """Create a container, let its status be written, and return its identifier."""
    answer = await client.post("/api/containers", json=world.body(name))
    assert answer.status_code == 201, answer.text
    if status:
        await world.report(name, **status)

        async def shown() -> bool:
            record = (await client.get(answer.headers["location"])).json()
            return bool(record["status"] == status["phase"])

        await until(shown, what="the status")
    return str(answer.json()["id"])


@pytest.mark.spec("7.2", "7.5", "23.1", "23.9")
async def test_counts_follow_the_containers(facade: Facade, world: FacadeInstallation) -> None:
    async with facade.client(world.key) as client:
        assert (await client.get("/api/deployments")).json() == []
        await made(client, world, "a", **READY)
        await made(client, world, "b", phase="failed")
        last = await made(client, world, "c")
        (record,) = (await client.get("/api/deployments")).json()
        assert record == {
            "id": record["id"],
            "repo": world.repo,
            "default_staging": False,
            "created_at": record["created_at"],
            "updated_at": record["updated_at"],
            "instance_count": 3,
            "ready_count": 1,
            "failed_count": 1,
            "stopped_count": 0,
            "deploying_count": 1,
        }
        container = (await client.get(f"/api/containers/{last}")).json()
        assert container["deployment_id"] == record["id"]
        await client.post(f"/api/containers/{last}/stop")
        (record,) = (await client.get("/api/deployments")).json()
        assert (record["stopped_count"], record["deploying_count"]) == (1, 0)


@pytest.fixture(scope="module")
def patient(proxied_settings: Path) -> Iterator[Facade]:
    """Return a facade that waits longer for its cache than a test holds back its watches."""
    path = proxied_settings.with_name("patient.yml")
    settings = yaml.safe_load(proxied_settings.read_text())
    path.write_text(yaml.safe_dump({**settings, "writeWaitSeconds": 60}))
    with start_facade(path) as running:
        yield running


@pytest.mark.parametrize("by", ["this create", "another replica"])
async def test_a_create_is_answered_when_its_deployment_is_shown(
    patient: Facade, proxy: FaultyProxy, world: FacadeInstallation, by: str
) -> None:
    held = HeldEvents(lambda request: request.kind == "deployments")
    name = deployment_name(world.repo)
    async with patient.client(world.key) as client:
        await world.await_cached_by(patient)
        proxy.faults = (held,)
        try:
            if by == "another replica":
                body = {"metadata": {"name": name}, "spec": {"repo": world.repo}}
                await world.kube.create(of(Deployment), body, world.namespace)
            sending = asyncio.create_task(client.post("/api/containers", json=world.body("web")))

            async def shown() -> bool:
                return bool((await client.get("/api/containers")).json())

            await until(shown, every=0.01, what="the container")
            # What is left to do takes less than many a request.
            for _ in range(30):
                assert await shown()
                assert not sending.done()
        finally:
            held.release()
            proxy.faults = ()
        answer = await sending
        assert answer.status_code == 201, answer.text
        deployment = await world.kube.get(of(Deployment), name, world.namespace)
        assert answer.json()["deployment_id"] == deployment["metadata"]["uid"]
        (record,) = (await client.get("/api/deployments")).json()
        assert (record["id"], record["instance_count"]) == (answer.json()["deployment_id"], 1)


@pytest.mark.spec("7.3", "7.6", "23.2")
async def test_the_default_of_staging_is_changed(facade: Facade, world: FacadeInstallation) -> None:
    async with facade.client(world.key) as client:
        first = await made(client, world, "a")
        (record,) = (await client.get("/api/deployments")).json()
        path = f"/api/deployments/{record['id']}"
        answer = await client.patch(path, json={"default_staging": True})
        assert answer.status_code == 200, answer.text
        assert answer.json()["default_staging"] is True
        assert (await client.get("/api/deployments")).json() == [answer.json()]
        later = await made(client, world, "b")
        known = {
            each["id"]: each["staging"] for each in (await client.get("/api/containers")).json()
        }
        assert known == {first: False, later: True}
        item = await world.container("b")
        assert item is not None
        assert item["spec"]["staging"] is True
        for body in ({}, {"default_staging": "yes"}, {"default_staging": True, "more": 1}):
            assert (await client.patch(path, json=body)).status_code == 400
        missing = await client.patch(f"/api/deployments/{UNKNOWN}", json={"default_staging": True})
        assert missing.status_code == 404


@pytest.mark.spec("5.7", "7.7", "23.3", "23.4")
@pytest.mark.lifecycle("update-of-all")
async def test_an_update_of_all_tells_each_result(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        ready = await made(client, world, "ready", **READY)
        failed = await made(client, world, "failed", phase="failed")
        busy = await made(client, world, "busy")
        (record,) = (await client.get("/api/deployments")).json()
        path = f"/api/deployments/{record['id']}/update"
        answer = await client.post(path, json={"tag": "v1.1.0"})
        assert answer.status_code == 200, answer.text
        results = {each["container_id"]: each for each in answer.json()["results"]}
        assert {key: each["status"] for key, each in results.items()} == {
            ready: "updating",
            failed: "updating",
            busy: "skipped",
        }
        assert results[busy]["error"] == "instance is not running"
        assert results[ready]["container"]["update_tag"] == "v1.1.0"
        assert results[ready]["name"] == "ready"
        item = await world.container("ready")
        assert item is not None
        assert (item["spec"]["tag"], item["spec"]["staging"]) == ("v1.1.0", False)
        assert item["spec"]["relaunchStaging"] is False

        again = await client.post(
            path, json={"tag": "v1.1.0", "staging": True, "instance_ids": [ready]}
        )
        (result,) = again.json()["results"]
        assert (result["status"], result["error"]) == ("skipped", "update already in progress")


async def test_an_update_of_many_looks_its_release_up_once(
    facade: Facade, world: FacadeInstallation
) -> None:
    """More than an organization may have requests that look something up."""
    many = 40
    await world.change_organization(limits={"containers": many})
    async with facade.client(world.key) as client:
        first = await made(client, world, "c0", **READY)
        item = await world.container("c0")
        assert item is not None
        for number in range(1, many):
            name = f"c{number}"
            meta = {"name": name, "namespace": world.namespace}
            await world.kube.create(
                of(Container), {"metadata": meta, "spec": item["spec"]}, world.namespace
            )
            await world.report(name, **READY)

        async def all_are_ready() -> bool:
            (record,) = (await client.get("/api/deployments")).json()
            return bool(record["ready_count"] == many)

        await until(all_are_ready, what="all containers")
        deployment = (await client.get(f"/api/containers/{first}")).json()["deployment_id"]
        path = f"/api/deployments/{deployment}/update"
        answer = await client.post(path, json={"tag": "v1.1.0"})
        results = answer.json()["results"]
    assert [each["status"] for each in results] == ["updating"] * many, answer.text


@pytest.mark.spec("23.7")
async def test_what_git_manages_fails_alone(facade: Facade, world: FacadeInstallation) -> None:
    async with facade.client(world.key) as client:
        await made(client, world, "mine", **READY)
        spec = {"repo": world.repo, "tag": "v1.0.0"}
        body = {
            "apiVersion": "cloister.dev/v1alpha1",
            "kind": "Container",
            "metadata": {"name": "theirs"},
            "spec": spec,
        }
        await world.apply_as("kustomize-controller", body)
        await world.report("theirs", **READY)

        async def two_are_ready() -> bool:
            (record,) = (await client.get("/api/deployments")).json()
            return bool(record["ready_count"] == 2)

        await until(two_are_ready, what="both containers")
        (record,) = (await client.get("/api/deployments")).json()
        answer = await client.post(
            f"/api/deployments/{record['id']}/update", json={"tag": "v1.1.0", "staging": True}
        )
        results = {each["name"]: each for each in answer.json()["results"]}
        assert results["mine"]["status"] == "updating"
        assert results["theirs"]["status"] == "failed"
        assert "kustomize-controller" in results["theirs"]["error"]
        item = await world.container("mine")
        assert item is not None
        assert (item["spec"]["staging"], item["spec"]["relaunchStaging"]) == (False, True)


@pytest.mark.spec("7.7", "23.6", "23.8")
@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 400, "tag"),
        ({"tag": "v1.1.0", "instance_ids": []}, 400, "instance_ids"),
        ({"tag": "v1.1.0", "instance_ids": [UNKNOWN]}, 400, "instance_ids"),
        ({"tag": "v1.1.0", "promote_release": True}, 400, "promote_release"),
        ({"tag": "v9.9.9"}, 400, "tag"),
    ],
)
async def test_a_wrong_update_writes_nothing(
    facade: Facade, world: FacadeInstallation, body: dict[str, Any], status: int, field: str
) -> None:
    async with facade.client(world.key) as client:
        await made(client, world, "a", **READY)
        (record,) = (await client.get("/api/deployments")).json()
        before = await world.container("a")
        answer = await client.post(f"/api/deployments/{record['id']}/update", json=body)
        assert answer.status_code == status, answer.text
        assert field in answer.json()["error"]
        after = await world.container("a")
        assert before is not None
        assert after is not None
        assert after["spec"] == before["spec"]


@pytest.mark.spec("22.15")
async def test_without_a_subscription_nothing_is_updated(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        await made(client, world, "a", **READY)
        (record,) = (await client.get("/api/deployments")).json()
        path = f"/api/deployments/{record['id']}/update"
        await world.change_organization(billing={"containerSubscription": False})

        async def unpaid() -> bool:
            return (await client.post(path, json={"tag": "v1.1.0"})).status_code == 402

        await until(unpaid, what="the lapse to be seen")
        # 402 before 400 and 404 (spec 20.12), at every call that deploys.
        for wrong in (
            {"tag": "v1.1.0", "instance_ids": []},
            {"tag": "v1.1.0", "promote_release": True},
        ):
            assert (await client.post(path, json=wrong)).status_code == 402
        for body in (
            world.body("b", ssh_keys=["none"]),
            world.body("b", replace_container_id=UNKNOWN),
        ):
            assert (await client.post("/api/containers", json=body)).status_code == 402
        container = (await client.get("/api/containers")).json()[0]["id"]
        relaunch = await client.post(
            f"/api/containers/{container}/relaunch", json={"ssh_keys": ["none"]}
        )
        assert relaunch.status_code == 402


async def test_another_organization_learns_nothing(
    facade: Facade, world: FacadeInstallation, other_world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        await made(client, world, "a")
        (record,) = (await client.get("/api/deployments")).json()
    async with facade.client(other_world.key) as client:
        assert (await client.get("/api/deployments")).json() == []
        for given in (record["id"], UNKNOWN):
            change = await client.patch(f"/api/deployments/{given}", json={"default_staging": True})
            update = await client.post(f"/api/deployments/{given}/update", json={"tag": "v1.1.0"})
            assert change.status_code == update.status_code == 404
    items = (await world.kube.list(of(Deployment), world.namespace)).items
    assert all(not item["spec"].get("defaultStaging") for item in items)
