"""Creates that are refused: what is said, and that nothing is left behind."""

import hashlib
from datetime import datetime
from typing import Any

import pytest
import yaml

from cloister_clients.clock import utc_now
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Host, HostnameClaim, Secret
from cloister_crds.lifecycle.admission.keys import api_reachable_condition
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, merge
from tests.support.programs.facade import DOMAIN, Facade, FacadeInstallation, config_file
from tests.support.waiting import until

LONGEST_LABEL = f"{'a' * 51}--77qfj7t24d"
"""Label of the host name of 64 times a: a label has 63 characters."""


async def refused(facade: Facade, world: FacadeInstallation, **change: Any) -> dict[str, Any]:
    """Create what must be refused, and check that nothing was made."""
    async with facade.client(world.key) as client:
        answer = await client.post("/api/containers", json=world.body("web", **change))
    body: dict[str, Any] = answer.json()
    assert answer.status_code >= 400, body
    assert body["request_id"] == answer.headers["x-request-id"]
    assert await world.containers() == []
    assert await world.claims() == []
    return {"status": answer.status_code, **body}


async def conditions_of_the_host(world: FacadeInstallation, update: ConditionUpdate) -> None:
    """Report a condition of the organization's Host, as the operator does.

    It is nobody's default any more: whoever names no Host, such as tests of another worker, gets
    the first default one of all.
    """
    await world.kube.merge_patch(of(Host), world.host, {"spec": {"default": False}})
    told = merge((), [update], generation=1, now=utc_now())
    status = {"conditions": [each.wire() for each in told]}
    await world.kube.merge_patch(of(Host), world.host, {"status": status}, subresource="status")


@pytest.mark.spec("21.17", "40.2")
@pytest.mark.parametrize(
    ("change", "field", "code"),
    [
        ({"tag": "v9"}, "tag", "TagNotFound"),
        ({"repo": "nobody/nothing"}, "repo", "RepositoryNotFound"),
        ({"tag": "no file"}, "tag", "Invalid"),
        ({"secrets": ["API_KEY"]}, "secrets[0]", "SecretNotFound"),
        ({"ssh_keys": ["mine"], "debug": True}, "ssh_keys[0]", "SSHKeyNotFound"),
    ],
)
async def test_what_is_asked_for_must_be_there(
    facade: Facade, world: FacadeInstallation, change: dict[str, Any], field: str, code: str
) -> None:
    body = await refused(facade, world, **change)
    assert (body["status"], body["code"]) == (400, "BAD_REQUEST")
    assert [detail["code"] for detail in body["details"]] == [code]
    assert body["details"][0]["field"] in {field, "repo"}


@pytest.mark.spec("40.1")
async def test_a_release_without_file_is_named(facade: Facade, world: FacadeInstallation) -> None:
    commit = world.repository.commit({"README": b"nothing\n"})
    world.repository.tag("empty", commit)
    body = await refused(facade, world, tag="empty")
    assert body["details"][0]["code"] == "ConfigFileNotFound"
    assert "service-config.yml" in body["error"]


@pytest.mark.spec("20.8")
async def test_all_errors_of_a_file_are_reported_together(
    facade: Facade, world: FacadeInstallation
) -> None:
    document = yaml.safe_load(config_file("registry.test/web:latest"))
    document.update(cpus=3, memory=1)
    world.repository.release("bad", yaml.safe_dump(document).encode())
    body = await refused(facade, world, tag="bad")
    fields = {detail["field"] for detail in body["details"]}
    assert {"cpus", "memory", "containers[0].image"} <= fields
    assert body["status"] == 400


@pytest.mark.spec("20.8")
async def test_request_and_release_are_judged_together(
    facade: Facade, world: FacadeInstallation
) -> None:
    document = yaml.safe_load(config_file(world.image))
    document.update(cpus=3)
    world.repository.release("three", yaml.safe_dump(document).encode())
    body = await refused(facade, world, tag="three", secrets=["NOBODYS"])
    assert [each["field"] for each in body["details"]] == ["secrets[0]", "cpus"]
    body = await refused(facade, world, tag="v9", secrets=["NOBODYS"])
    assert [each["field"] for each in body["details"]] == ["secrets[0]", "tag"]


@pytest.mark.spec("49.1", "49.2", "49.3", "49.4")
async def test_an_image_that_is_not_there_is_named(
    facade: Facade, world: FacadeInstallation
) -> None:
    missing = f"{world.registry.host}/team/web@sha256:{'1' * 64}"
    world.repository.release("lost", config_file(missing))
    body = await refused(facade, world, tag="lost")
    assert body["details"][0]["field"] == "containers[0].image"
    assert body["details"][0]["code"] == "ImageNotFound"


async def test_an_unreachable_registry_is_distinguished_from_a_missing_image(
    facade: Facade, world: FacadeInstallation
) -> None:
    host, digest = "localhost:1", world.image.rpartition("@")[2]
    world.repository.release("away", config_file(f"{host}/team/web@{digest}"))
    body = await refused(facade, world, tag="away")
    assert "containers[0].image" in str(body)
    assert host in body["error"]


@pytest.mark.spec("20.12")
@pytest.mark.parametrize(
    "change", [{"gpus": 1}, {"host_name": "anything"}, {"custom_domain": "web.example.test"}]
)
async def test_a_missing_entitlement_is_forbidden(
    facade: Facade, world: FacadeInstallation, change: dict[str, Any]
) -> None:
    body = await refused(facade, world, **change)
    assert (body["status"], body["code"]) == (403, "FORBIDDEN")
    assert "entitlement" in body["error"]


@pytest.mark.spec("20.9", "21.17")
async def test_a_host_is_chosen_by_those_who_may(facade: Facade, world: FacadeInstallation) -> None:
    await world.change_organization(entitlements={"hostSelection": True})

    async def unknown() -> bool:
        body = await refused(facade, world, host_name="nowhere")
        return body["status"] == 400 and "host_name" in str(body["details"])

    await until(unknown)
    async with facade.client(world.key) as client:
        made = await client.post("/api/containers", json=world.body("web", host_name=world.host))
        assert made.status_code == 201, made.text
    container = await world.container("web")
    assert container is not None
    assert container["spec"]["host"] == world.host
    update = ConditionUpdate("Ready", status=False, reason="NoResolver", message="no name server")
    await conditions_of_the_host(world, update)
    async with facade.client(world.key) as client:
        body = world.body("other", host_name=world.host, tag="v1.1.0")

        async def waits() -> bool:
            """Return whether the facade has seen the Host's status."""
            answer = await client.post("/api/containers", json=body)
            if answer.is_success:
                await client.delete(answer.headers["location"])
                return False
            assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")
            assert int(answer.headers["retry-after"]) > 0
            return "host_name" in answer.text and "no name server" in answer.text

        await until(waits, what="the Host's status")


@pytest.mark.attack("foreign-domain")
async def test_a_host_name_that_another_holds_is_a_conflict(
    facade: Facade, world: FacadeInstallation
) -> None:
    hostname = f"web.{world.organization}.{DOMAIN}"
    claim = {
        "metadata": {"name": hostname},
        "spec": {"holder": {"namespace": "elsewhere", "name": "web"}},
    }
    await world.kube.create(of(HostnameClaim), claim)
    try:
        body = await refused(facade, world)
        assert (body["status"], body["code"]) == (409, "CONFLICT")
        assert hostname in body["error"]
    finally:
        await world.kube.delete(of(HostnameClaim), hostname)


@pytest.mark.spec("12.1")
async def test_a_quota_that_is_reached_is_forbidden_before_anything_is_made(
    facade: Facade, world: FacadeInstallation
) -> None:
    await world.change_organization(limits={"containers": 0})

    async def reached() -> bool:
        async with facade.client(world.key) as client:
            answer = await client.post("/api/containers", json=world.body("web"))
        if answer.status_code == 201:
            async with facade.client(world.key) as client:
                await client.delete(answer.headers["location"])
            return False
        assert answer.status_code == 403
        return "quota reached" in answer.json()["error"]

    await until(reached)
    assert await world.containers() == []


@pytest.mark.spec("6.3", "21.11")
async def test_validate_reports_all_problems_and_creates_nothing(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        body = {"repo": world.repo, "tag": "v1.0.0"}
        good = (await client.post("/api/containers/validate", json=body)).json()
        assert good["valid"] is True
        assert good["errors"] == []
        assert good["config"]["cpus"] == 2
        assert good["deadlines"] == {"pull_seconds": 3600, "boot_seconds": 1800}
        slow = yaml.safe_load(config_file(world.image))
        slow["containers"][0]["healthcheck"] = {"test": ["CMD", "/a"], "start_period": "45m"}
        world.repository.release("slow", yaml.safe_dump(slow).encode())
        told = (await client.post("/api/containers/validate", json={**body, "tag": "slow"})).json()
        assert told["deadlines"]["boot_seconds"] == 1800 + 45 * 60 + 3 * 60 + 15
        lost = await client.post("/api/containers/validate", json={**body, "tag": "v9"})
        assert lost.status_code == 200
        assert lost.json()["valid"] is False
        assert lost.json()["config"] is None
        assert [each["code"] for each in lost.json()["errors"]] == ["TagNotFound"]
        world.repository.release("bad", b"cpus: 3\n")
        bad = (await client.post("/api/containers/validate", json={**body, "tag": "bad"})).json()
        assert bad["valid"] is False
        assert {"cpus", "containers"} <= {each["field"] for each in bad["errors"]}
        assert bad["file"]["lines"] == {"1": "cpus: 3", "2": ""}
        assert "secrets" not in bad
    assert await world.containers() == []


async def test_validate_shows_the_file_its_secrets_and_the_address(
    facade: Facade, world: FacadeInstallation
) -> None:
    document = yaml.safe_load(config_file(world.image))
    names = ["OF_REPOSITORY", "OF_ORGANIZATION", "OF_NOBODY"]
    document["containers"][0]["secrets"] = names
    file = yaml.safe_dump(document).encode()
    commit = world.repository.release("secretive", file)
    reference = {"secretRef": {"name": "core", "key": "value"}}
    for name, repo in ((names[0], world.repo), (names[1], None)):
        spec = {"name": name, **reference, **({"repo": repo} if repo else {})}
        body = {"metadata": {"name": name.lower().replace("_", "-")}, "spec": spec}
        await world.kube.create(of(Secret), body, world.namespace)
    question = {"repo": world.repo, "tag": "secretive"}
    async with facade.client(world.key) as client:

        async def verdict(**more: Any) -> dict[str, Any]:
            answer = await client.post("/api/containers/validate", json={**question, **more})
            assert answer.status_code == 200, answer.text
            told: dict[str, Any] = answer.json()
            return told

        async def known() -> bool:
            found = {each["name"]: each["found"] for each in (await verdict())["secrets"]}
            return found == {names[2]: "missing", names[1]: "organization", names[0]: "repository"}

        await until(known)
        told = await verdict(instance_name="web")
        assert (told["commit"], told["file"]["name"]) == (commit, "service-config.yml")
        assert told["file"]["digest"] == f"sha256:{hashlib.sha256(file).hexdigest()}"
        # A secret that is not there is no mistake at a place of the file.
        assert told["file"]["lines"] == {}
        assert told["hostname"] == f"web.{world.organization}.{DOMAIN}"
        assert datetime.fromisoformat(told["published_at"]).tzinfo is not None
        assert "hostname" not in await verdict()
        assert "hostname" not in await verdict(instance_name="-")
        custom = await verdict(instance_name="web", custom_domain="www.example.test")
        assert custom["hostname"] == "www.example.test"
        made = await client.post("/api/containers", json=world.body("one"))
        relaunch = await verdict(container_id=made.json()["id"])
        assert relaunch["hostname"] == made.json()["domain"]


@pytest.mark.spec("24.9")
async def test_validate_warns_of_a_secret_that_the_create_must_bind(
    facade: Facade, world: FacadeInstallation
) -> None:
    document = yaml.safe_load(config_file(world.image))
    document["containers"][0]["secrets"] = ["API_KEY"]
    world.repository.release("keyed", yaml.safe_dump(document).encode())
    release = {"repo": world.repo, "tag": "keyed"}
    async with facade.client(world.key) as client:
        secret = {"name": "API_KEY", "value": "made up"}
        assert (await client.post("/api/secrets", json=secret)).status_code == 201

        async def verdict(**more: Any) -> tuple[bool, list[tuple[str, str]]]:
            answer = await client.post("/api/containers/validate", json={**release, **more})
            assert answer.status_code == 200, answer.text
            told = answer.json()
            listed = [*told["errors"], *told["warnings"]]
            return told["valid"], [
                (each["field"], each["code"]) for each in listed if "secrets" in each["field"]
            ]

        unbound = [("containers[0].secrets[0]", "SecretNotBound")]
        assert await verdict() == (True, unbound)
        assert await verdict(secrets=["API_KEY"]) == (True, [])
        assert await verdict(secrets=[]) == (False, unbound)
        made = await client.post("/api/containers", json=world.body("web"))
        assert made.status_code == 201, made.text
        held = {"container_id": made.json()["id"]}
        assert await verdict(**held) == (True, unbound)
        assert await verdict(**held, secrets=["API_KEY"]) == (True, [])
        bound = world.body("bound", tag="keyed", secrets=["API_KEY"])
        assert (await client.post("/api/containers", json=bound)).status_code == 201


JUDGED: dict[str, dict[str, Any]] = {
    "nothing more": {},
    "a host that is not there": {"host_name": "nowhere"},
    "gpus without a right": {"gpus": 8},
    "a secret that is not there": {"secrets": ["NOBODYS"]},
    "variables that the file does not name": {"variables": {"OTHER": "1"}},
    "keys of a production container": {"ssh_keys": ["mine"]},
    "a key that is not there": {"ssh_keys": ["mine"], "debug": True},
    "a domain that is not there": {"custom_domain": "www.example.test"},
    "confidential mode off in production": {"disable_cc_mode": True},
    "a tag that is not there": {"tag": "v9"},
    "a name that is taken": {"name": "taken"},
    "a release in the way of a good name": {"name": "a" * 64, "debug": True, "tag": "v9"},
}
"""What a create may say -> the same in a validate."""


@pytest.mark.spec("21.11")
async def test_validate_judges_as_the_create_does(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        assert (await client.post("/api/containers", json=world.body("taken"))).is_success
        for place, (case, asked) in enumerate(JUDGED.items()):
            body = {**world.body(f"web-{place}"), **asked}
            question = {("instance_name" if key == "name" else key): body[key] for key in body}
            answer = await client.post("/api/containers/validate", json=question)
            assert answer.status_code == 200, (case, answer.text)
            verdict = answer.json()
            made = await client.post("/api/containers", json=body)
            assert verdict["valid"] is made.is_success, (case, verdict, made.text)
            assert verdict["errors"] or made.is_success, case
            told = {(each["code"], each["field"]) for each in verdict["errors"]}
            details = made.json().get("details") or []
            assert {(each["code"], each["field"]) for each in details} <= told, case
            if made.status_code == 403:
                assert verdict["errors"][0]["message"] == made.json()["error"], case
            if made.status_code == 409:
                assert told == {("NameTaken", "instance_name")}, case


@pytest.mark.spec("21.11")
async def test_validate_of_a_relaunch_skips_the_limit(
    facade: Facade, world: FacadeInstallation
) -> None:
    await world.change_organization(limits={"containers": 1})
    async with facade.client(world.key) as client:
        made = (await client.post("/api/containers", json=world.body("web"))).json()
        body = {"repo": world.repo, "tag": "v1.1.0"}

        async def full() -> bool:
            new = (await client.post("/api/containers/validate", json=body)).json()
            return [each["code"] for each in new["errors"]] == ["LimitReached"]

        await until(full)
        again = {**body, "container_id": made["id"]}
        relaunch = (await client.post("/api/containers/validate", json=again)).json()
        assert relaunch["valid"] is True, relaunch
        other = {**again, "replace_container_id": "00000000-0000-4000-8000-000000000000"}
        assert (await client.post("/api/containers/validate", json=other)).status_code == 404


@pytest.mark.spec("4.2", "6.2", "21.10")
async def test_validate_name(facade: Facade, world: FacadeInstallation) -> None:
    async with facade.client(world.key) as client:

        async def ask(**body: Any) -> dict[str, Any]:
            answer = await client.post("/api/containers/validate-name", json=body)
            assert answer.status_code == 200, answer.text
            found: dict[str, Any] = answer.json()
            return found

        zone = f"{world.organization}.{DOMAIN}"
        longest = "a" * 64
        for name, label in (("web--production", "web--production"), (longest, LONGEST_LABEL)):
            told = {"available": True, "name": name, "internal_domain": f"{label}.{zone}"}
            assert await ask(name=name) == told
        assert (await ask(name="web", debug=True))["internal_domain"] == f"web.debug.{zone}"
        for bad in ("", "Web", "-web", "web-", "a" * 65, "we.b"):
            verdict = await ask(name=bad)
            assert verdict["available"] is False
            assert verdict["reason"]
            assert "internal_domain" not in verdict
        made = (await client.post("/api/containers", json=world.body("web"))).json()
        assert (await ask(name="web"))["available"] is False
        assert (await ask(name="web", debug=True))["available"] is True
        assert (await ask(name="web", container_id=made["id"]))["available"] is True


async def test_the_shapes_of_a_file_are_those_of_the_organization(
    facade: Facade, world: FacadeInstallation
) -> None:
    document = yaml.safe_load(config_file(world.image))
    document.update(cpus=128, memory=4096)
    world.repository.release("small", yaml.safe_dump(document).encode())
    body = {"repo": world.repo, "tag": "small"}
    async with facade.client(world.key) as client:
        usual = (await client.post("/api/containers/validate", json=body)).json()
        assert {each["field"] for each in usual["errors"]} == {"cpus", "memory"}
        await world.change_organization(limits={"cpus": [2, 128], "memory": [4096]})

        async def admitted() -> bool:
            wider = (await client.post("/api/containers/validate", json=body)).json()
            return bool(wider["valid"])

        await until(admitted)


async def test_unchecked_keys_are_refused_as_by_the_operator(
    facade: Facade, world: FacadeInstallation
) -> None:
    """The operator says on the Host that it has no apiAddress; both doors read that."""
    document = yaml.safe_load(config_file(world.image))
    document["shim"]["authenticated"] = True
    world.repository.release("keyed", yaml.safe_dump(document).encode())
    found = api_reachable_condition(None, "")
    await conditions_of_the_host(world, found)
    await world.change_organization(entitlements={"hostSelection": True})
    async with facade.client(world.key) as client:
        # On a Host by name: of several default ones another test's may be the first.
        here = world.body("web", host_name=world.host)

        async def made() -> str:
            answer = await client.post("/api/containers", json=here)
            return str(answer.json()["id"]) if answer.is_success else ""

        held = await until(made, what="the right to choose a Host")
        question = {"repo": world.repo, "tag": "keyed", "container_id": held}

        async def problems() -> list[dict[str, Any]]:
            answer = (await client.post("/api/containers/validate", json=question)).json()
            return [each for each in answer["errors"] if each["code"] == "ApiAddressMissing"]

        # The facade sees the Host's status a moment later.
        (problem,) = await until(problems, what="the problem of the Host")
        assert problem["field"] == "shim.authenticated"
        assert "apiAddress" in problem["message"]
        body = {**here, "name": "other", "tag": "keyed"}
        for path, sent in (("", body), (f"/{held}/relaunch", {"tag": "keyed"})):
            answer = await client.post(f"/api/containers{path}", json=sent)
            assert answer.status_code == 400, answer.text
            assert [each["code"] for each in answer.json()["details"]] == ["ApiAddressMissing"]
    (kept,) = await world.containers()
    assert (kept["spec"]["name"], kept["spec"]["tag"]) == ("web", "v1.0.0")
