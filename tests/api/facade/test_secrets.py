"""/api/secrets: names in custom resources, values in core Secrets alone."""

import asyncio
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from cloister_clients.kube.kinds import ROLE_BINDING, SECRET, of
from cloister_crds.kinds import Secret
from cloister_crds.names import VALUE_LABEL, secret_object_name
from tests.api.facade.test_serving import changed
from tests.support.cluster.accounts import organization_namespace
from tests.support.cluster.clusters import unique
from tests.support.faults.fault_kinds import ApiRequest, HeldEvents
from tests.support.faults.faulty_proxy import FaultyProxy
from tests.support.programs.facade import Facade, FacadeInstallation, start_facade
from tests.support.waiting import until

FIRST, SECOND = "made-up-value-1", "made-up-value-2"


async def value_of(world: FacadeInstallation, name: str, repo: str | None = None) -> str:
    """Read the value of a secret where the operator would."""
    secret = await world.kube.get(of(Secret), secret_object_name(name, repo), world.namespace)
    reference = secret["spec"]["secretRef"]
    core = await world.kube.get(SECRET, reference["name"], world.namespace)
    assert core["metadata"]["ownerReferences"][0]["uid"] == secret["metadata"]["uid"]
    return b64decode(core["data"][reference["key"]]).decode()


async def everything(world: FacadeInstallation) -> str:
    """Return all custom resources of the namespace and the audit trail as one text."""
    secrets = (await world.kube.list(of(Secret), world.namespace)).items
    return f"{secrets} {await world.containers()} {await world.audit()}"


@pytest.mark.spec("24.7")
async def test_each_container_is_a_user_of_its_own(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        await client.post("/api/secrets", json={"name": "API_KEY", "value": FIRST})
        users = []
        for debug in (False, True):
            body = world.body("web", secrets=["API_KEY"], debug=debug)
            made = (await client.post("/api/containers", json=body)).json()
            users.append({"id": made["id"], "name": "web", "debug": debug})
        shown = (await client.get("/api/secrets/API_KEY")).json()
        refused = await client.delete("/api/secrets/API_KEY")
        assert refused.status_code == 409
        for body in (shown, refused.json()):
            assert (body["used_by"], body["used_by_containers"]) == (["web", "web"], users)
        assert "used by web, web (debug);" in refused.json()["error"]


@pytest.mark.spec("3.3", "8.2", "8.4", "24.1", "24.6")
async def test_the_life_of_a_secret(facade: Facade, world: FacadeInstallation) -> None:
    async with facade.client(world.key) as client:
        made = await client.post("/api/secrets", json={"name": "API_KEY", "value": FIRST})
        assert made.status_code == 201, made.text
        record = made.json()
        used = {"used_by", "used_by_containers"}
        assert set(record) == {"id", "name", "created_at", "updated_at", *used}
        assert (record["name"], record["used_by"]) == ("API_KEY", [])
        assert made.headers["location"] == "/api/secrets/API_KEY"
        assert (await client.get("/api/secrets")).json() == [record]
        assert await value_of(world, "API_KEY") == FIRST

        body = world.body("web", secrets=["API_KEY"])
        container = (await client.post("/api/containers", json=body)).headers["location"]
        shown = (await client.get("/api/secrets/API_KEY")).json()
        assert shown["used_by"] == ["web"]

        long = await client.put("/api/secrets/API_KEY", json={"value": "x" * 131_064})
        assert long.status_code == 400
        assert "at most 131063" in long.json()["error"]
        changed = await client.put("/api/secrets/API_KEY", json={"value": SECOND})
        assert changed.status_code == 200, changed.text
        assert changed.json()["updated_at"] >= record["updated_at"]
        assert (await client.get("/api/secrets/API_KEY")).json() == changed.json()
        assert await value_of(world, "API_KEY") == SECOND

        refused = await client.delete("/api/secrets/API_KEY")
        assert refused.status_code == 409
        assert (refused.json()["code"], refused.json()["used_by"]) == ("CONFLICT", ["web"])
        assert "web" in refused.json()["error"]

        assert (await client.delete(container)).status_code == 204
        gone = await client.delete("/api/secrets/API_KEY")
        assert (gone.status_code, gone.content) == (204, b"")
        assert (await client.get("/api/secrets/API_KEY")).status_code == 404
        assert (await client.get("/api/secrets")).json() == []
    cores = (await world.kube.list(SECRET, world.namespace, label_selector=VALUE_LABEL)).items
    assert not cores
    told = await everything(world) + facade.log.read_text()
    assert FIRST not in told
    assert SECOND not in told


@pytest.mark.spec("8.4")
async def test_of_deletes_at_once_one_finds_the_secret(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        for number in range(6):
            name = f"S_{number}"
            made = await client.post("/api/secrets", json={"name": name, "value": FIRST})
            assert made.status_code == 201, made.text
            path = f"/api/secrets/{name}"
            answers = await asyncio.gather(*(client.delete(path) for _ in range(2 + number % 2)))
            statuses = sorted(each.status_code for each in answers)
            assert statuses == [204, *([404] * (1 + number % 2))]
            assert (await client.get(path)).status_code == 404
            # The name is free at once, and what is made then is not deleted by the late ones.
            again = await client.post("/api/secrets", json={"name": name, "value": SECOND})
            assert again.status_code == 201, again.text
            assert await value_of(world, name) == SECOND
        pinned = (await client.get(path)).headers["etag"]
        versioned = {"If-Match": pinned}
        answers = await asyncio.gather(
            *(client.delete(path, headers=versioned) for _ in range(2)),
        )
        assert sorted(each.status_code for each in answers) in ([204, 404], [204, 412])


@pytest.mark.spec("8.1")
async def test_two_spellings_are_two_secrets(facade: Facade, world: FacadeInstallation) -> None:
    async with facade.client(world.key) as client:
        for name in ("TLS_KEY", "tls-key"):
            body = {"name": name, "value": f"value of {name}"}
            assert (await client.post("/api/secrets", json=body)).status_code == 201
        listed = (await client.get("/api/secrets")).json()
        assert [each["name"] for each in listed] == ["TLS_KEY", "tls-key"]
        assert await value_of(world, "tls-key") == "value of tls-key"


@pytest.mark.spec("8.3", "24.8")
async def test_a_name_is_had_once(facade: Facade, world: FacadeInstallation) -> None:
    async with facade.client(world.key) as client:
        bodies = [{"name": "API_KEY", "value": f"made-up-value-{number}"} for number in range(4)]
        answers = await asyncio.gather(*(client.post("/api/secrets", json=each) for each in bodies))
        statuses = [each.status_code for each in answers]
        assert sorted(statuses) == [201, 409, 409, 409]
        won = bodies[statuses.index(201)]
        repository = {**won, "repo": world.repo}
        assert (await client.post("/api/secrets", json=repository)).status_code == 409
        assert await value_of(world, "API_KEY") == won["value"]


@pytest.mark.spec("8.3")
async def test_two_repositories_may_have_a_secret_of_one_name(
    facade: Facade, world: FacadeInstallation
) -> None:
    other = f"{world.organization}/other"
    async with facade.client(world.key) as client:
        paths = {}
        for repo in (world.repo, other):
            body = {"name": "API_KEY", "value": f"of {repo}", "repo": repo}
            made = await client.post("/api/secrets", json=body)
            assert made.status_code == 201, made.text
            paths[repo] = made.headers["location"]
            assert paths[repo] == f"/api/secrets/{made.json()['id']}"
            assert (await client.get(paths[repo])).json() == made.json()
            assert (await client.post("/api/secrets", json=body)).status_code == 409
        assert await value_of(world, "API_KEY", other) == f"of {other}"
        plain = await client.post("/api/secrets", json={"name": "API_KEY", "value": "x"})
        assert (plain.status_code, plain.json()["code"]) == (409, "CONFLICT")

        for method in ("GET", "PUT", "DELETE"):
            content = {"value": "y"} if method == "PUT" else None
            unclear = await client.request(method, "/api/secrets/API_KEY", json=content)
            assert unclear.status_code == 409
            assert all(f"{repo}: {path}" in unclear.text for repo, path in paths.items())
        long = await client.put(paths[other], json={"value": "x" * 131_072})
        assert long.status_code == 400
        assert (await client.put(paths[other], json={"value": SECOND})).status_code == 200
        assert await value_of(world, "API_KEY", other) == SECOND
        assert await value_of(world, "API_KEY", world.repo) == f"of {world.repo}"
        assert (await client.delete(paths[other])).status_code == 204
        assert (await client.get("/api/secrets/API_KEY")).json()["repo"] == world.repo


@pytest.mark.spec("8.3")
async def test_of_an_organizations_and_a_repositorys_secret_one_gets_the_name(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        for number in range(4):
            body = {"name": f"S_{number}", "value": FIRST}
            answers = await asyncio.gather(
                *(
                    client.post("/api/secrets", json={**body, **repo})
                    for repo in ({}, {"repo": world.repo})
                )
            )
            assert sorted(each.status_code for each in answers) == [201, 409]
        assert len((await client.get("/api/secrets")).json()) == 4
    cores = (await world.kube.list(SECRET, world.namespace, label_selector=VALUE_LABEL)).items
    assert len(cores) == 4


class HeldDeletions(HeldEvents):
    """Holds back what a watch says of a kind: deletions, and apart from them all else."""

    def __init__(self, kind: str) -> None:
        super().__init__(lambda request: request.kind == kind)
        self.created = HeldEvents(self._concerns)

    @override
    async def event(self, request: ApiRequest, event: dict[str, Any]) -> bool:
        if event["type"] == "DELETED":
            return await super().event(request, event)
        return await self.created.event(request, event)


async def test_a_secret_that_was_taken_back_is_in_no_list_after_its_refusal(
    proxied_settings: Path, proxy: FaultyProxy, world: FacadeInstallation
) -> None:
    world.settings = proxied_settings
    spec = {"name": "API_KEY", "repo": world.repo, "secretRef": {"name": "core", "key": "value"}}
    with start_facade(changed(world, "waits", writeWaitSeconds=60)) as facade:
        async with facade.client(world.key) as client:
            held = HeldDeletions("secrets")
            proxy.faults = (held,)
            try:
                body = {"metadata": {"name": "of-the-repository"}, "spec": spec}
                await world.kube.create(of(Secret), body, world.namespace)
                body = {"name": "API_KEY", "value": FIRST}
                creating = asyncio.create_task(client.post("/api/secrets", json=body))

                async def taken_back() -> bool:
                    return any(
                        each.request.verb == "delete" and each.request.namespace == world.namespace
                        for each in proxy.written()
                    )

                await until(taken_back, what="the end of the second secret")
                held.created.release()

                async def both() -> bool:
                    return len((await client.get("/api/secrets")).json()) == 2

                await until(both, what="the secrets in the facade's cache")
                assert not creating.done()
            finally:
                held.created.release()
                held.release()
            assert (await creating).status_code == 409
            (left,) = (await client.get("/api/secrets")).json()
            proxy.faults = ()
    assert left["repo"] == world.repo


@pytest.mark.spec("24.7")
async def test_a_repositorys_secret_is_used_by_containers_whose_file_names_it(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        body = {"name": "API_KEY", "value": FIRST, "repo": world.repo}
        assert (await client.post("/api/secrets", json=body)).json()["repo"] == world.repo
        await client.post("/api/containers", json=world.body("web"))
        # Until the operator has read the file it may name the secret.
        assert (await client.get("/api/secrets/API_KEY")).json()["used_by"] == ["web"]
        await world.report("web", secrets=["API_KEY"])
        assert (await client.delete("/api/secrets/API_KEY")).status_code == 409
        await world.report("web", secrets=["OTHER"])

        async def unused() -> bool:
            record = (await client.get("/api/secrets/API_KEY")).json()
            return bool(record["used_by"] == [])

        await until(unused)
        assert (await client.delete("/api/secrets/API_KEY")).status_code == 204


async def test_a_secret_create_without_a_response_is_idempotent(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        body = {"name": "API_KEY", "value": FIRST}
        made = await client.post("/api/secrets", json=body)
        await world.forget_response(made.json()["id"])
        again = await client.post("/api/secrets", json=body)
        assert (again.status_code, again.json()) == (201, made.json())
        await world.forget_response(made.json()["id"])
        other = await client.post("/api/secrets", json={**body, "value": SECOND})
        assert other.status_code == 409
        assert await value_of(world, "API_KEY") == FIRST


async def test_what_an_earlier_secret_left_is_replaced(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        await client.post("/api/secrets", json={"name": "API_KEY", "value": FIRST})
        # Deleted by kubectl, and the garbage collector has not come by yet.
        await world.kube.delete(of(Secret), secret_object_name("API_KEY"), world.namespace)
        answer = await client.post("/api/secrets", json={"name": "API_KEY", "value": SECOND})
        assert answer.status_code == 201, answer.text
    assert await value_of(world, "API_KEY") == SECOND


@pytest.mark.spec("20.22")
@pytest.mark.parametrize("part", [{"stringData": {"tls": "theirs"}}, {"data": {"tls": "dGhlaXJz"}}])
async def test_a_value_that_git_manages_is_not_changed(
    facade: Facade, world: FacadeInstallation, part: dict[str, Any]
) -> None:
    spec = {"name": "tls-key", "secretRef": {"name": "from-git", "key": "tls"}}
    await world.kube.create(
        of(Secret), {"metadata": {"name": "tls-key"}, "spec": spec}, world.namespace
    )
    core = {"metadata": {"name": "from-git"}, **part}
    async with world.as_manager("kustomize-controller") as kube:
        await kube.apply(SECRET, core, world.namespace)
    async with facade.client(world.key) as client:

        async def seen() -> bool:
            return (await client.get("/api/secrets/tls-key")).status_code == 200

        await until(seen, what="the secret of the repository")
        answer = await client.put("/api/secrets/tls-key", json={"value": FIRST})
        assert answer.status_code == 409
        assert "kustomize-controller" in answer.json()["error"]
    found = await world.kube.get(SECRET, "from-git", world.namespace)
    assert b64decode(found["data"]["tls"]) == b"theirs"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"value": "x"}, "name"),
        ({"name": "API_KEY"}, "value"),
        ({"name": "API_KEY", "value": ""}, "value"),
        ({"name": "Api_Key", "value": "x"}, "name"),
        ({"name": "a--b", "value": "x"}, "name"),
        ({"name": "API_KEY", "value": "a\x00b"}, "value"),
        ({"name": "API_KEY", "value": "é" * 65_532}, "value"),
        ({"name": "API_KEY", "value": "x", "extra": 1}, "extra"),
        ({"name": "API_KEY", "value": "x", "repo": "nobody"}, "repo"),
    ],
)
async def test_wrong_bodies_are_refused_by_field(
    facade: Facade, world: FacadeInstallation, body: dict[str, Any], field: str
) -> None:
    async with facade.client(world.key) as client:
        answer = await client.post("/api/secrets", json=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "BAD_REQUEST")
        assert answer.json()["details"][0]["field"] == field
        assert (await client.get("/api/secrets")).json() == []


async def test_another_organization_learns_nothing(
    facade: Facade, world: FacadeInstallation, other_world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        await client.post("/api/secrets", json={"name": "API_KEY", "value": FIRST})
    async with facade.client(other_world.key) as client:
        assert (await client.get("/api/secrets")).json() == []
        for method in ("GET", "PUT", "DELETE"):
            body = {"value": SECOND} if method == "PUT" else None
            there = await client.request(method, "/api/secrets/API_KEY", json=body)
            nowhere = await client.request(method, "/api/secrets/NO_SUCH", json=body)
            assert there.status_code == nowhere.status_code == 404
            assert there.json()["error"] == nowhere.json()["error"]
    assert await value_of(world, "API_KEY") == FIRST


async def test_a_namespace_without_rights_for_the_facade_is_answered_to_retry(
    facade: Facade, world: FacadeInstallation
) -> None:
    binding = "cloister-api-organization"
    await world.kube.delete(ROLE_BINDING, binding, world.namespace)
    body = {"name": "API_KEY", "value": FIRST}
    async with facade.client(world.key) as client:

        async def refused() -> bool:
            answer = await client.post(
                "/api/secrets", json={**body, "name": unique("K").replace("-", "_").upper()}
            )
            return answer.status_code == 503 and binding in answer.json()["error"]

        await until(refused, what="the authorizer has forgotten the RoleBinding")
        for kind, made in organization_namespace(world.organization):
            if made["metadata"]["name"] == binding:
                await world.kube.create(kind, made)

        async def accepted() -> bool:
            return (await client.post("/api/secrets", json=body)).status_code == 201

        await until(accepted, what="the authorizer knows the RoleBinding")
    assert await value_of(world, "API_KEY") == FIRST
