"""What every request goes through: keys, sizes, media types, paths, methods, fields."""

import uuid
from typing import Any

import pytest

from cloister_api.commands.organizations import restore_identifiers
from cloister_api.ledger.keys.key_material import generate
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Organization
from cloister_crds.kinds.meta import Record
from tests.support.programs.facade import ADMIN, Facade, FacadeInstallation
from tests.support.waiting import until

ANY = "0b6d7f0e-3a4c-4f0e-9d55-0c1f2e3d4a5b"
"""An identifier of nothing."""


@pytest.mark.spec("2.1", "2.5", "3.2", "20.5")
@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer admin_short",
        "Bearer tk_abcdefghijklmnopqrstuvwxyz0123456789",
        "Bearer admin_000000000000000000000000000000000000",
        "Basic YWRtaW46YWRtaW4=",
        "Bearer admin_é",
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/containers"),
        ("POST", "/api/containers"),
        ("PUT", "/api/containers"),
        ("GET", "/api/no/such/path"),
        ("GET", "/api"),
    ],
)
async def test_without_a_key_there_is_nothing(
    facade: Facade, method: str, path: str, header: str | None
) -> None:
    headers = [] if header is None else [(b"Authorization", header.encode())]
    async with facade.client() as client:
        answer = await client.request(method, path, headers=headers, content=b"{" * 10)
    assert answer.status_code == 401
    assert answer.json()["code"] == "UNAUTHORIZED"
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.spec("2.5")
@pytest.mark.attack("dead-key")
async def test_a_well_formed_key_that_was_never_issued_is_unknown(facade: Facade) -> None:
    async with facade.client(generate()) as client:
        assert (await client.get("/api/containers")).status_code == 401


@pytest.mark.spec("2.5")
@pytest.mark.attack("dead-key")
async def test_an_expired_key_is_unknown(facade: Facade, world: FacadeInstallation) -> None:
    key = await world.new_key(days=1)
    async with facade.client(key) as client:
        assert (await client.get("/api/containers")).status_code == 200
        await world.expire(key)

        async def expired() -> bool:
            return (await client.get("/api/containers")).status_code == 401

        await until(expired)


@pytest.mark.spec("2.4")
@pytest.mark.attack("dead-key")
async def test_a_key_dies_with_its_creators_role_for_good(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        assert (await client.get("/api/containers/hosts")).status_code == 200
        await world.change_organization(members=[{"user": ADMIN, "role": "Member"}])

        async def forbidden() -> bool:
            return (await client.get("/api/containers/hosts")).status_code == 403

        await until(forbidden)
        await world.change_organization(members=[{"user": ADMIN, "role": "Admin"}])
        fresh = await world.new_key()
        async with facade.client(fresh) as other:

            async def admitted() -> bool:
                return (await other.get("/api/containers")).status_code == 200

            await until(admitted)
        answer = await client.get("/api/containers/hosts")
    assert answer.status_code == 403
    assert answer.json()["code"] == "FORBIDDEN"
    assert "revoked" in answer.json()["error"]


@pytest.mark.spec("2.4")
async def test_a_role_lost_between_two_requests_revokes_the_key(
    facade: Facade, world: FacadeInstallation
) -> None:
    await world.change_organization(members=[])

    async def revoked() -> bool:
        return await world.is_revoked(world.key)

    await until(revoked)
    await world.change_organization(members=[{"user": ADMIN, "role": "Admin"}])
    async with facade.client(world.key) as client:

        async def refused() -> bool:
            # The ledger is ahead of what a facade has in memory, by half a second at most.
            answer = await client.get("/api/containers")
            return answer.status_code == 403 and "was revoked" in answer.json()["error"]

        await until(refused)


async def test_a_later_organization_of_the_name_does_not_inherit_keys(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        assert (await client.get("/api/containers")).status_code == 200
        present = await world.kube.get(of(Organization), world.organization)
        await world.kube.delete(of(Organization), world.organization)

        async def refused() -> bool:
            return (await client.get("/api/containers")).status_code == 403

        await until(refused)
        body = {"metadata": {"name": world.organization}, "spec": present["spec"]}
        await world.kube.create(of(Organization), body)
        fresh = await world.new_key()
        async with facade.client(fresh) as other:

            async def admitted() -> bool:
                return (await other.get("/api/containers")).status_code == 200

            await until(admitted)
        assert (await client.get("/api/containers")).status_code == 403
        # What a restore does: the Organization has the identifier that it had before.
        backup: dict[type[Record], dict[tuple[str, str], str]] = {
            Organization: {("", world.organization): present["metadata"]["uid"]}
        }
        assert await restore_identifiers(world.kube, backup) == (1, [])

        async def restored() -> bool:
            return (await client.get("/api/containers")).status_code == 200

        await until(restored)


@pytest.mark.spec("3.2", "20.13")
async def test_another_organizations_id_is_as_unknown_as_any(
    facade: Facade, world: FacadeInstallation, other_world: FacadeInstallation
) -> None:
    async with facade.client(other_world.key) as client:
        made = await client.post("/api/containers", json=other_world.body("theirs"))
        assert made.status_code == 201, made.text
        theirs = made.headers["location"]
    ours = f"/api/containers/{ANY}"
    async with facade.client(world.key) as client:
        assert (await client.get("/api/containers")).json() == []
        for method, action in [
            ("GET", ""),
            ("DELETE", ""),
            ("POST", "/relaunch"),
            ("POST", "/stop"),
            ("POST", "/start"),
            ("GET", "/update"),
            ("POST", "/update/cancel"),
        ]:
            one = await client.request(method, theirs + action)
            two = await client.request(method, ours + action)
            assert one.status_code == two.status_code == 404
            for answer in (one, two):
                assert answer.json()["code"] == "NOT_FOUND"
            assert one.json()["error"] == two.json()["error"]
        for malformed in ("x", "../hosts/..", "%00", "A" * 5000, "123"):
            assert (await client.get(f"/api/containers/{malformed}")).status_code == 404
    assert await other_world.container("theirs") is not None


@pytest.mark.spec("1.2")
@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", ""),
        (b"{", ""),
        (b"[]", ""),
        (b"null", ""),
        (b'"text"', ""),
        (b"\xff\xfe{}", ""),
        (b"[" * 100_000, ""),
        (b'{"name": "web", "repo": "a/b"}', "tag"),
        (b'{"name": 5, "repo": "a/b", "tag": "v1"}', "name"),
        (b'{"name": "web", "repo": "a/b", "tag": "v1", "debug": "yes"}', "debug"),
        (b'{"name": "web", "repo": "a/b", "tag": "v1", "debug": 1}', "debug"),
        (b'{"name": "web", "repo": "a/b", "tag": "v1", "variables": []}', "variables"),
        (b'{"name": "web", "repo": "a/b", "tag": "v1", "variables": {"A": 1}}', "variables.A"),
        (b'{"name": "web", "repo": "a/b", "tag": "v1", "variables": {"A": "\\u0000"}}',
         "variables.A"),
        (b'{"name": "web", "repo": "a/b", "tag": "v1", "variables": {"A": "\\ud800"}}',
         "variables.A"),
        (b'{"name": "web", "repo": "a/b", "tag": "v1", "secrets": "A"}', "secrets"),
        (b'{"name": "web", "repo": "a/b", "tag": "v1", "secrets": ["A", "A"]}', "secrets"),
        (b'{"name": "web", "repo": "a/b", "tag": "v1", "gpus": 1.5}', "gpus"),
        (b'{"name": "Web", "repo": "a/b", "tag": "v1"}', "name"),
        (b'{"name": "web\\n", "repo": "a/b", "tag": "v1"}', "name"),
        (b'{"name": "web", "repo": "../b", "tag": "v1"}', "repo"),
        (b'{"name": "web", "repo": "a", "tag": "v1"}', "repo"),
        (b'{"name": "web", "repo": "a/b", "tag": ""}', "tag"),
        (b'{"name": "web", "repo": "a/b", "tag": "v1", "colour": "red"}', "colour"),
    ],
)  # fmt: skip
async def test_a_wrong_body_is_named(
    facade: Facade, world: FacadeInstallation, body: bytes, field: str
) -> None:
    async with facade.client(world.key) as client:
        headers = {"Content-Type": "application/json"}
        answer = await client.post("/api/containers", content=body, headers=headers)
    assert answer.status_code == 400, answer.text
    assert answer.json()["code"] == "BAD_REQUEST"
    if field:
        assert field in answer.json()["error"]
        assert field in {detail["field"].split("[")[0] for detail in answer.json()["details"]}
    assert await world.containers() == []


@pytest.mark.spec("20.14")
async def test_a_body_is_bounded(facade: Facade, world: FacadeInstallation) -> None:
    async with facade.client(world.key) as client:
        headers = {"Content-Type": "application/json"}
        huge = b" " * (1024 * 1024 + 1)
        declared = await client.post("/api/containers", content=huge, headers=headers)
        assert declared.status_code == 413
        assert declared.json()["code"] == "PAYLOAD_TOO_LARGE"

        async def pieces() -> Any:
            for _ in range(40):
                yield b" " * 32_768

        streamed = await client.post("/api/containers", content=pieces(), headers=headers)
        assert streamed.status_code == 413


@pytest.mark.spec("1.2", "20.14")
async def test_only_json_is_taken(facade: Facade, world: FacadeInstallation) -> None:
    async with facade.client(world.key) as client:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx"):
            headers = {"Content-Type": kind}
            answer = await client.post("/api/containers", content=b"{}", headers=headers)
            assert answer.status_code == 415
            assert answer.json()["code"] == "UNSUPPORTED_MEDIA_TYPE"
        headers = {"Content-Type": "Application/JSON; charset=utf-8"}
        answer = await client.post("/api/containers", content=b"{}", headers=headers)
        assert answer.status_code == 400


@pytest.mark.spec("20.9")
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/api/containers", "GET, POST"),
        ("DELETE", "/api/containers", "GET, POST"),
        ("POST", f"/api/containers/{ANY}", "DELETE, GET"),
        ("GET", f"/api/containers/{ANY}/stop", "POST"),
    ],
)
async def test_a_method_that_a_path_does_not_know(
    facade: Facade, world: FacadeInstallation, method: str, path: str, allowed: str
) -> None:
    async with facade.client(world.key) as client:
        answer = await client.request(method, path)
    assert answer.status_code == 405
    assert answer.json()["code"] == "METHOD_NOT_ALLOWED"
    assert answer.headers["allow"] == allowed


@pytest.mark.spec("3.2")
async def test_a_path_that_does_not_exist(facade: Facade, world: FacadeInstallation) -> None:
    async with facade.client(world.key) as client:
        for path in ("/api/nothing", "/api/containers/", "/", "/nothing"):
            answer = await client.get(path)
            assert answer.status_code == 404, path
            assert answer.json()["code"] == "NOT_FOUND"


@pytest.mark.spec("20.6")
async def test_health_needs_no_key(facade: Facade) -> None:
    async with facade.client() as client:
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        assert (await client.get("/readyz")).json() == {"status": "ok"}


@pytest.mark.spec("20.15")
async def test_request_ids_are_kept_where_they_are_harmless(facade: Facade) -> None:
    async with facade.client() as client:
        kept = await client.get("/healthz", headers={"X-Request-Id": "my-id.1"})
        assert kept.headers["x-request-id"] == "my-id.1"
        made = await client.get("/healthz", headers={"X-Request-Id": "a b"})
        assert uuid.UUID(made.headers["x-request-id"]).version == 4


async def test_the_description_is_served(facade: Facade) -> None:
    async with facade.client() as client:
        document = await client.get("/openapi.json")
        assert (document.status_code, document.json()["openapi"][:2]) == (200, "3.")
