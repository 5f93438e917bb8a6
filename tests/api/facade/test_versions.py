"""Changes of the version that a client has read, creates sent again, and lists in pieces."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Container, Domain
from cloister_crds.kinds.meta import REQUESTED_AT_ANNOTATION
from tests.api.facade.test_secrets import HeldDeletions
from tests.api.facade.test_serving import changed
from tests.support.clients.openapi_check import described
from tests.support.faults.fault_kinds import HeldEvents
from tests.support.faults.faulty_proxy import FaultyProxy
from tests.support.faults.mutations import CALLS
from tests.support.programs.facade import Facade, FacadeInstallation, start_facade
from tests.support.waiting import until


async def made(
    client: httpx.AsyncClient, world: FacadeInstallation, name: str = "web"
) -> httpx.Response:
    """Create a container."""
    answer = await client.post("/api/containers", json=world.body(name))
    assert answer.status_code == 201, answer.text
    return answer


@pytest.mark.spec("20.17")
@pytest.mark.parametrize(
    ("method", "action", "body"),
    [
        ("POST", "/stop", None),
        ("POST", "/relaunch", {"tag": "v1.1.0"}),
        ("POST", "/auto-update", {"auto_update": False}),
        ("POST", "/github-connection", {"enabled": True}),
        ("POST", "/update/accept", None),
        ("POST", "/update/cancel", None),
        ("POST", "/start", None),
        ("DELETE", "", None),
    ],
)
async def test_a_version_that_is_gone_is_not_changed(
    proxied: Facade,
    proxy: FaultyProxy,
    world: FacadeInstallation,
    method: str,
    action: str,
    body: dict[str, object] | None,
) -> None:
    async with proxied.client(world.key) as client:
        answer = await made(client, world)
        path, etag = answer.headers["location"], answer.headers["etag"]
        # Another client changes it, which the facade's cache does not show yet.
        held = HeldEvents(lambda request: request.kind == "containers")
        proxy.faults = (held,)
        try:
            patch = {"metadata": {"labels": {"changed": "by-another"}}}
            await world.kube.merge_patch(of(Container), "web", patch, world.namespace)
            before = await world.container("web")
            headers = {"If-Match": etag}
            refused = await client.request(method, path + action, json=body, headers=headers)
        finally:
            held.release()
            proxy.faults = ()
        assert refused.status_code == 412, refused.text
        assert refused.json()["code"] == "PRECONDITION_FAILED"
        assert await world.container("web") == before


async def test_a_stop_is_done_although_the_cache_shows_it_done_already(
    proxied: Facade, proxy: FaultyProxy, world: FacadeInstallation
) -> None:
    async with proxied.client(world.key) as client:
        path = (await made(client, world)).headers["location"]
        assert (await client.post(f"{path}/stop")).status_code == 200
        held = HeldEvents(lambda request: request.kind == "containers")
        proxy.faults = (held,)
        try:
            patch = {"spec": {"state": "Running"}}
            await world.kube.merge_patch(of(Container), "web", patch, world.namespace)
            stopping = asyncio.create_task(client.post(f"{path}/stop"))

            async def stopped() -> bool:
                found = await world.container("web")
                return found is not None and found["spec"]["state"] == "Stopped"

            await until(stopped, what="the second stop")
        finally:
            held.release()
            proxy.faults = ()
        assert (await stopping).status_code == 200


async def test_a_start_is_done_although_the_cache_does_not_show_the_stop(
    proxied: Facade, proxy: FaultyProxy, world: FacadeInstallation
) -> None:
    async with proxied.client(world.key) as client:
        path = (await made(client, world)).headers["location"]
        held = HeldEvents(lambda request: request.kind == "containers")
        proxy.faults = (held,)
        try:
            assert (await client.post(f"{path}/start")).status_code == 409
            patch = {"spec": {"state": "Stopped"}}
            await world.kube.merge_patch(of(Container), "web", patch, world.namespace)
            await world.report("web", phase="stopped")
            starting = asyncio.create_task(client.post(f"{path}/start"))

            async def started() -> bool:
                found = await world.container("web")
                return starting.done() or bool(found and found["spec"]["state"] == "Running")

            await until(started, what="the start")
        finally:
            held.release()
            proxy.faults = ()
        assert (await starting).status_code == 200


async def test_a_deleted_container_is_in_no_list_where_its_creation_was_not_known(
    proxied_settings: Path, proxy: FaultyProxy, world: FacadeInstallation
) -> None:
    world.settings = proxied_settings
    spec = {"name": "web", "repo": world.repo, "tag": "v1.0.0"}
    with start_facade(changed(world, "waits", writeWaitSeconds=60)) as facade:
        async with facade.client(world.key) as client:
            held = HeldDeletions("containers")
            proxy.faults = (held,)
            try:
                body = {"metadata": {"name": "web"}, "spec": spec}
                there = await world.kube.create(of(Container), body, world.namespace)
                path = f"/api/containers/{there['metadata']['uid']}"
                deleting = asyncio.create_task(client.delete(path))

                async def deleted() -> bool:
                    return await world.container("web") is None

                await until(deleted, what="the deletion")
                held.created.release()

                async def listed() -> int:
                    return len((await client.get("/api/containers")).json())

                await until(listed, what="the container in the facade's cache")
                assert not deleting.done()
            finally:
                held.created.release()
                held.release()
            assert (await deleting).status_code == 204
            assert await listed() == 0
            proxy.faults = ()


async def test_the_version_that_was_read_is_changed_once(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        answer = await made(client, world)
        path = answer.headers["location"]
        etag = (await client.get(path)).headers["etag"]
        assert etag == answer.headers["etag"]
        for match in ('W/"1"', "1", '"1", W/"2"', ""):
            refused = await client.post(f"{path}/stop", headers={"If-Match": match})
            assert refused.status_code == 412, match
        stopped = await client.post(f"{path}/stop", headers={"If-Match": f'"1", {etag}'})
        assert stopped.status_code == 200, stopped.text
        assert stopped.headers["etag"] != etag
        again = await client.delete(path, headers={"If-Match": etag})
        assert again.status_code == 412
        gone = await client.delete(path, headers={"If-Match": stopped.headers["etag"]})
        assert gone.status_code == 204
        assert (await client.delete(path, headers={"If-Match": "*"})).status_code == 404


@pytest.mark.spec("20.11", "20.16")
async def test_lists_are_paginated_on_request(facade: Facade, world: FacadeInstallation) -> None:
    async with facade.client(world.key) as client:
        for number in range(5):
            await made(client, world, f"w{number}")
            body = {"name": f"S_{number}", "value": "made-up"}
            assert (await client.post("/api/secrets", json=body)).status_code == 201
        for path in ("/api/containers", "/api/secrets"):
            whole = await client.get(path)
            assert "link" not in whole.headers
            found, following, asked = [], f"{path}?limit=2", 0
            while following:
                answer = await client.get(following)
                assert answer.status_code == 200, answer.text
                found += answer.json()
                following = answer.links.get("next", {}).get("url", "")
                asked += 1
            assert asked == 3
            by_id = sorted(whole.json(), key=lambda each: each["id"])
            assert sorted(found, key=lambda each: each["id"]) == by_id
        for query in ("limit=0", "limit=101", "limit=x", "cursor=x", "cursor="):
            refused = await client.get(f"/api/containers?{query}")
            assert refused.status_code == 400, query
            assert refused.json()["details"][0]["field"] == query.partition("=")[0]


def operations_with(parameter: str) -> list[str]:
    """Return the operations beside those of containers that read a header, by the document."""
    wanted = {"$ref": f"#/components/parameters/{parameter}"}
    return [
        operation["operationId"]
        for path, item in described()["paths"].items()
        for method, operation in item.items()
        if wanted in operation.get("parameters", ()) and "{container_id}" not in path
        if method != "get"
    ]


@pytest.mark.spec("20.17")
async def test_every_record_that_can_be_changed_has_versions(
    facade: Facade, entitled_world: FacadeInstallation
) -> None:
    async with facade.client(entitled_world.key) as client:
        for operation in operations_with("IfMatch"):
            sent = await CALLS[operation].prepare(
                entitled_world, client, operation.replace("_", "-")
            )
            if operation == "put_credentials":
                assert (await sent.by(client)).status_code == 200
            before = await everything(client)
            refused = await replace(sent, headers={"If-Match": '"0"'}).by(client)
            assert refused.status_code == 412, f"{operation}: {refused.text}"
            assert refused.json()["code"] == "PRECONDITION_FAILED"
            assert await everything(client) == before


async def everything(client: httpx.AsyncClient) -> list[Any]:
    """Return all records beside containers."""
    lists = ("deployments", "secrets", "ssh-keys", "domains", "registry-credentials")
    return [(await client.get(f"/api/{each}")).json() for each in lists]


@pytest.mark.spec("20.17")
async def test_a_version_is_changed_once_whatever_it_is_of(
    facade: Facade, entitled_world: FacadeInstallation
) -> None:
    async with facade.client(entitled_world.key) as client:
        deployment = await CALLS["change_deployment"].prepare(entitled_world, client, "single")
        domain = await CALLS["verify_domain"].prepare(entitled_world, client, "single")
        credentials = await CALLS["put_credentials"].prepare(entitled_world, client, "single")
        secret = await CALLS["update_secret"].prepare(entitled_world, client, "single")
        for sent in (deployment, domain, credentials, secret):
            answers = [await sent.by(client)]
            etag = answers[0].headers["etag"]
            again = replace(sent, headers={"If-Match": etag})
            if sent is domain:
                # The stand-in of the operator has reported the check meanwhile.
                etag = await version_of(entitled_world, Domain, sent.path.split("/")[3])
                again = replace(sent, headers={"If-Match": etag})
            answers += [await again.by(client), await again.by(client)]
            statuses = [each.status_code for each in answers]
            # Writing the same value is not a change.
            assert statuses == ([200, 200, 200] if sent is deployment else [200, 200, 412]), sent
        got = await client.get("/api/secrets/single")
        gone = await client.delete("/api/secrets/single", headers={"If-Match": got.headers["etag"]})
        assert gone.status_code == 204, gone.text


async def test_each_value_has_a_version_of_its_own(
    facade: Facade, entitled_world: FacadeInstallation
) -> None:
    """Several are written within a second, which is as exact as the time of a change is."""
    async with facade.client(entitled_world.key) as client:
        secret = await CALLS["update_secret"].prepare(entitled_world, client, "often")
        credentials = await CALLS["put_credentials"].prepare(entitled_world, client, "often")
        for sent in (secret, credentials):
            answers = [await sent.by(client) for _ in range(6)]
            assert {each.status_code for each in answers} == {200}
            assert len({each.headers["etag"] for each in answers}) == 6


async def version_of(world: FacadeInstallation, kind: type[Domain], name: str) -> str:
    """Return the ETag of an object as the server has it, once the last check is reported."""

    async def told() -> str:
        found = await world.kube.get(of(kind), name, world.namespace)
        asked = found["metadata"].get("annotations", {}).get(REQUESTED_AT_ANNOTATION, "")
        said = found.get("status", {}).get("lastHandledRequest", "")
        return found["metadata"]["resourceVersion"] if asked == said else ""

    return f'"{await until(told, what="the look at the domain")}"'


@pytest.mark.spec("20.18")
async def test_every_create_can_be_sent_again(
    facade: Facade, entitled_world: FacadeInstallation
) -> None:
    found = operations_with("IdempotencyKey")
    # Keys lie in the ledger; `test_keys` sends theirs again.
    assert len(found) == 5
    found.remove("create_key")
    async with facade.client(entitled_world.key) as client:
        for operation in found:
            sent = await CALLS[operation].prepare(
                entitled_world, client, operation.replace("_", "-")
            )
            keyed = replace(sent, headers={"Idempotency-Key": "one"})
            answers = [await keyed.by(client), await keyed.by(client)]
            assert [each.status_code for each in answers] == [201, 201], operation
            assert answers[0].json()["id"] == answers[1].json()["id"]
            for headers in ({}, {"Idempotency-Key": "two"}):
                other = await replace(sent, headers=headers).by(client)
                assert other.status_code == 409, operation
            wrong = await replace(sent, headers={"Idempotency-Key": "x" * 256}).by(client)
            assert wrong.status_code == 400, operation
