"""Containers over REST from create to delete, on a real API server."""

import asyncio

import httpx
import pytest

from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Container, Deployment
from cloister_crds.names import deployment_name
from tests.support.programs.facade import ADMIN, DOMAIN, Facade, FacadeInstallation
from tests.support.waiting import until


async def create(client: httpx.AsyncClient, world: FacadeInstallation, name: str = "web") -> str:
    made = await client.post("/api/containers", json=world.body(name))
    assert made.status_code == 201, made.text
    return str(made.headers["location"])


@pytest.mark.spec("1.4", "4.1", "5.2", "6.5", "6.6", "21.1", "21.2")
@pytest.mark.lifecycle("create")
async def test_a_create_makes_claim_deployment_and_container(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        body = world.body("web", variables={"GREETING": "hello"}, group_name="old", gpus=None)
        made = await client.post("/api/containers", json=body)
        assert made.status_code == 201, made.text
        record = made.json()
        got = await client.get(made.headers["location"])
    container = await world.container("web")
    assert container is not None
    assert made.headers["location"] == f"/api/containers/{container['metadata']['uid']}"
    assert got.json() == record
    hostname = f"web.{world.organization}.{DOMAIN}"
    deployment = await world.kube.get(of(Deployment), deployment_name(world.repo), world.namespace)
    commit = world.repository.git("rev-parse", "v1.0.0")
    assert container["spec"]["commit"] == commit
    assert record == {
        "id": container["metadata"]["uid"],
        "deployment_id": deployment["metadata"]["uid"],
        "name": "web",
        "repo": world.repo,
        "status": "deploying",
        "domain": hostname,
        "internal_domain": hostname,
        "current_tag": "v1.0.0",
        "requested_tag": "v1.0.0",
        "cpus": 2,
        "gpus": 0,
        "memory_mb": 8192,
        "debug": False,
        "variables": {"GREETING": "hello"},
        "secrets": [],
        "ssh_keys": [],
        "staging": False,
        "disable_cc_mode": False,
        "github_app_connected": True,
        "auto_update": False,
        "created_at": container["metadata"]["creationTimestamp"],
        "updated_at": record["updated_at"],
    }
    assert await world.claims() == [], "its name says who has the host name"


async def test_the_list_is_the_same_by_each_of_its_ways(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        for name in ("one", "two", "three"):
            made = await client.post("/api/containers", json=world.body(name))
            assert made.status_code == 201, made.text
        token = {"x-consistency-token": made.headers["x-consistency-token"]}
        seen = await client.get("/api/containers", headers=token)
        whole = await client.get("/api/containers", params={"limit": 100})
        plain = await client.get("/api/containers")
    assert {one["name"] for one in plain.json()} == {"one", "two", "three"}
    assert plain.content == seen.content == whole.content
    assert plain.headers["content-type"] == seen.headers["content-type"]

    async def lines() -> list[str]:
        told = facade.log.read_text().splitlines()
        return [line for line in told if plain.headers["x-request-id"] in line]

    line = (await until(lines, what="the line of the request"))[0]
    assert "GET /api/containers 200" in line


@pytest.mark.spec("22.7")
async def test_right_after_its_create_a_container_deploys_everywhere(
    facade: Facade, world: FacadeInstallation
) -> None:
    """Until DNS was checked, every response has the status of the create's."""
    async with facade.client(world.key) as client:
        for number in range(3):
            body = world.body(f"w{number}", staging=bool(number % 2))
            made = await client.post("/api/containers", json=body)
            path = made.headers["location"]
            one, update, every, deployments = await asyncio.gather(
                client.get(path),
                client.get(f"{path}/update"),
                client.get("/api/containers"),
                client.get("/api/deployments"),
            )
            assert made.json()["status"] == one.json()["status"] == "deploying"
            assert {each["status"] for each in every.json()} == {"deploying"}
            assert update.json() == {"has_update": False}
            assert "update_status" not in one.json()
            (deployment,) = deployments.json()
            counts = {key: value for key, value in deployment.items() if key.endswith("_count")}
            assert counts == {
                "instance_count": number + 1,
                "deploying_count": number + 1,
                "ready_count": 0,
                "failed_count": 0,
                "stopped_count": 0,
            }


@pytest.mark.spec("4.2", "4.3", "6.5")
async def test_a_production_and_a_debug_container_share_a_name(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        await create(client, world)
        debug = await client.post("/api/containers", json=world.body("web", debug=True))
        assert debug.status_code == 201, debug.text
        assert debug.json()["domain"] == f"web.debug.{world.organization}.{DOMAIN}"
        listed = (await client.get("/api/containers")).json()
        assert sorted(one["debug"] for one in listed) == [False, True]
    assert await world.container("web.debug") is not None


@pytest.mark.spec("12.4", "20.9")
async def test_a_taken_name_is_refused(facade: Facade, world: FacadeInstallation) -> None:
    async with facade.client(world.key) as client:
        await create(client, world)
        again = await client.post("/api/containers", json=world.body("web"))
    assert again.status_code == 409
    assert again.json()["code"] == "CONFLICT"
    assert "web" in again.json()["error"]


@pytest.mark.spec("4.1", "4.5", "6.11", "21.3", "21.12", "21.20", "22.5")
async def test_the_record_follows_the_status(facade: Facade, world: FacadeInstallation) -> None:
    async with facade.client(world.key) as client:
        path = await create(client, world)
        before = (await client.get(path)).json()
        await world.report(
            "web",
            phase="ready",
            currentTag="v1.0.0",
            resources={"cpus": 4, "memoryMB": 16384, "gpus": 0},
            host={"name": world.host, "cpuType": "EPYC", "gpuType": ""},
            update={
                "enclave": "web-x-2",
                "uid": "5f0c2a51-7f0e-4a0e-9b52-2f1f6f1d3c0b",
                "revision": "r",
                "tag": "v1.1.0",
                "status": "failed",
                "type": "blue_green",
                "message": "unhealthy",
            },
        )

        async def shown() -> dict[str, object]:
            record: dict[str, object] = (await client.get(path)).json()
            assert record["status"] == "ready"
            return record

        record = await until(shown)
        assert record["cpus"] == 4
        assert record["memory_mb"] == 16384
        assert record["host_name"] == world.host
        assert record["host_cpu_type"] == "EPYC"
        assert "host_gpu_type" not in record
        assert record["update_tag"] == "v1.1.0"
        assert record["update_status"] == "failed"
        assert record["update_type"] == "blue_green"
        assert record["error_message"] == "unhealthy"
        assert record["created_at"] == before["created_at"]
        update = (await client.get(f"{path}/update")).json()
        assert update == {
            "has_update": True,
            "update_deployment_id": "5f0c2a51-7f0e-4a0e-9b52-2f1f6f1d3c0b",
            "update_tag": "v1.1.0",
            "update_status": "failed",
        }


@pytest.mark.spec("3.5", "21.7", "22.6")
async def test_a_deleted_container_is_gone_at_once(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        path = await create(client, world)
        gone = await client.delete(path)
        assert (gone.status_code, gone.content) == (204, b"")
        assert (await client.get(path)).status_code == 404
        assert (await client.get("/api/containers")).json() == []
        assert (await client.delete(path)).status_code == 404
        again = await client.post("/api/containers", json=world.body("web"))
        assert again.status_code == 201, again.text


@pytest.mark.spec("22.6")
async def test_the_name_stays_taken_until_the_teardown_ends(
    facade: Facade, world: FacadeInstallation
) -> None:
    """An Enclave with a finalizer represents a teardown that takes its time."""
    async with facade.client(world.key) as client:
        path = await create(client, world)
        enclave = await world.enclave("web", finalizers=["tests.cloister.dev/slow"])
        assert (await client.delete(path)).status_code == 204
        taken = await client.post("/api/containers", json=world.body("web"))
        assert taken.status_code == 409
        assert "torn down" in taken.json()["error"]

        async def not_available() -> bool:
            # A create asks the server, this the cache, which shows the Enclave a moment later.
            name = await client.post("/api/containers/validate-name", json={"name": "web"})
            return name.json()["available"] is False

        await until(not_available, what="the Enclave in the way of the name")
        await world.end_enclave(enclave)
        again = await client.post("/api/containers", json=world.body("web"))
        assert again.status_code == 201, again.text


async def test_a_container_that_is_held_is_stopping_until_it_is_gone(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        path = await create(client, world)
        held = {"metadata": {"finalizers": ["tests.cloister.dev/keep"]}}
        await world.kube.merge_patch(of(Container), "web", held, world.namespace)
        assert (await client.delete(path)).status_code == 204
        assert (await client.get(path)).json()["status"] == "stopping"
        (listed,) = (await client.get("/api/containers")).json()
        assert listed["status"] == "stopping"
        assert (await client.delete(path)).status_code == 204
        assert (await client.post(f"{path}/stop")).status_code == 200
        for action in ("start", "relaunch"):
            refused = await client.post(f"{path}/{action}", json={})
            assert refused.status_code == 409
            assert "it is being deleted; create another one" in refused.json()["error"]
        free = {"metadata": {"finalizers": None}}
        await world.kube.merge_patch(of(Container), "web", free, world.namespace)

        async def gone() -> bool:
            return (await client.get(path)).status_code == 404

        await until(gone, what="its end")


async def test_a_deleted_container_counts_while_its_enclave_has_a_pod(
    facade: Facade, world: FacadeInstallation
) -> None:
    await world.change_organization(limits={"containers": 1})
    async with facade.client(world.key) as client:
        path = await create(client, world)
        await validates(client, world, problems=["LimitReached"])
        enclave = await world.enclave("web", finalizers=["tests.cloister.dev/slow"])
        assert (await client.delete(path)).status_code == 204
        # The container is gone; the Enclave is counted once the facade has seen it.
        await validates(client, world, problems=["LimitReached"])
        refused = await client.post("/api/containers", json=world.body("other"))
        assert refused.status_code == 403
        assert "quota reached" in refused.json()["error"]
        await world.end_enclave(enclave)

        async def accepted() -> bool:
            made = await client.post("/api/containers", json=world.body("other"))
            return made.status_code == 201

        await until(accepted, what="the place of the deleted one")


@pytest.mark.spec("12.4")
async def test_two_creates_of_a_name_at_once_make_one(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        bodies = [world.body("web", variables={"GREETING": str(number)}) for number in range(4)]
        answers = await asyncio.gather(
            *(client.post("/api/containers", json=body) for body in bodies)
        )
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409]
    assert len(await world.containers()) == 1


async def validates(
    client: httpx.AsyncClient, world: FacadeInstallation, *, problems: list[str]
) -> None:
    """Wait until the facade finds these problems of another container: it knows the limit then."""

    async def found() -> bool:
        body = {"repo": world.repo, "tag": "v1.0.0"}
        verdict = (await client.post("/api/containers/validate", json=body)).json()
        return [each["code"] for each in verdict["errors"]] == problems

    await until(found, what=f"the problems {problems}")


@pytest.mark.spec("12.1")
async def test_the_quota_holds_when_creates_race(facade: Facade, world: FacadeInstallation) -> None:
    await world.change_organization(limits={"containers": 1})
    async with facade.client(world.key) as client:
        await create(client, world, "one")
        await validates(client, world, problems=["LimitReached"])
        await world.change_organization(limits={"containers": 2})
        await validates(client, world, problems=[])
        answers = await asyncio.gather(
            *(client.post("/api/containers", json=world.body(f"w{n}")) for n in range(4))
        )
        assert len([one for one in answers if one.status_code == 201]) == 1
        refused = [one for one in answers if one.status_code != 201]
        assert {one.status_code for one in refused} == {403}
        assert all("quota reached" in one.json()["error"] for one in refused)
        assert len((await client.get("/api/containers")).json()) == 2


@pytest.mark.spec("12.1")
async def test_an_answered_create_of_the_same_second_keeps_its_place(
    facade: Facade, world: FacadeInstallation
) -> None:
    """By the times of creation, which are whole seconds, any of the five might be the first."""
    await world.change_organization(limits={"containers": 2})
    async with facade.client(world.key) as client:
        before = [await create(client, world, name) for name in ("one", "two")]
        await validates(client, world, problems=["LimitReached"])
        for turn in range(4):
            for path in before:
                assert (await client.delete(path)).status_code == 204
            answered = await create(client, world, f"first{turn}")
            bodies = [world.body(f"w{turn}{number}") for number in range(4)]
            answers = await asyncio.gather(
                *(client.post("/api/containers", json=body) for body in bodies)
            )
            assert sorted(one.status_code for one in answers) == [201, 403, 403, 403]
            (made,) = (one.headers["Location"] for one in answers if one.status_code == 201)
            before = [answered, made]


@pytest.mark.spec("4.4", "6.4", "21.14")
async def test_the_list_of_hosts_is_the_log_in_check(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        hosts = (await client.get("/api/containers/hosts")).json()
    found = {host["name"]: host for host in hosts}
    shown = found[world.host]
    assert shown["available_gpu_values"] == []
    assert (shown["tee"], shown["network_isolation"], shown["ready"]) == (
        "None",
        "Container",
        True,
    )
    assert [host["is_default"] for host in hosts].count(True) == 1


async def test_every_write_leaves_an_audit_row(facade: Facade, world: FacadeInstallation) -> None:
    async with facade.client(world.key) as client:
        path = await create(client, world)
        identity = path.rsplit("/", 1)[-1]
        await client.post(f"{path}/stop", headers={"X-Request-Id": "abc.1"})
        await client.post("/api/containers", json=world.body("web"))
        await client.delete(path)
    rows = [row for row in await world.audit() if row.key_id is not None]
    assert [(row.action, row.target, row.result) for row in rows] == [
        ("container.create", identity, "201"),
        ("container.stop", identity, "200"),
        ("container.create", "web", "409 CONFLICT"),
        ("container.delete", identity, "204"),
    ]
    assert {row.actor for row in rows} == {ADMIN}
    assert rows[1].request_id == "abc.1"


@pytest.mark.spec("21.5")
async def test_a_debug_container_may_do_without_the_tee(
    facade: Facade, world: FacadeInstallation
) -> None:
    body = world.body("web", debug=True, disable_cc_mode=True)
    async with facade.client(world.key) as client:
        made = await client.post("/api/containers", json=body)
        production = await client.post("/api/containers", json={**body, "debug": False})
    assert made.status_code == 201, made.text
    assert made.json()["disable_cc_mode"] is True
    container = await world.container("web.debug") or await world.container("web")
    assert container is not None
    assert container["spec"]["disableConfidential"] is True
    assert production.status_code == 400
    assert "disable_cc_mode is for debug enclaves only" in production.text
