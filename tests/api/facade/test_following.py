"""Automatic updates at the REST door: auto-update, github-connection, release webhooks."""

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Container, Deployment
from cloister_crds.kinds.meta import REQUESTED_AT_ANNOTATION
from tests.support.programs.facade import WEBHOOK_SECRET, Facade, FacadeInstallation, start_facade
from tests.support.waiting import until

READY = {"phase": "ready", "currentTag": "v1.0.0", "activeEnclave": "web-a-1"}
LATEST = {
    "tag": "v1.1.0",
    "commit": "c" * 40,
    "publishedAt": "2100-01-01T00:00:00Z",
    "comparedTo": "v1.0.0",
    "followed": True,
}


async def made(client: httpx.AsyncClient, world: FacadeInstallation, **status: Any) -> str:
    """Create a container that is ready, and return its path."""
    answer = await client.post("/api/containers", json=world.body("web"))
    assert answer.status_code == 201, answer.text
    path = str(answer.headers["location"])
    await reported(client, world, path, **READY, **status)
    return path


async def reported(
    client: httpx.AsyncClient, world: FacadeInstallation, path: str, **status: Any
) -> None:
    """Write a status, and wait until the facade shows it."""
    await world.report("web", **status)
    want = status.get("update", {}).get("status")

    async def shown() -> bool:
        record = (await client.get(path)).json()
        return bool(record["status"] == "ready" and record.get("update_status") == want)

    await until(shown, what="the status")


async def spec_of(world: FacadeInstallation) -> dict[str, Any]:
    """Return the spec of the container as the server has it."""
    item = await world.container("web")
    assert item is not None
    spec: dict[str, Any] = item["spec"]
    return spec


@pytest.mark.spec("21.8")
async def test_auto_update_is_switched(facade: Facade, world: FacadeInstallation) -> None:
    async with facade.client(world.key) as client:
        path = await made(client, world)
        for wanted in (True, True, False):
            answer = await client.post(f"{path}/auto-update", json={"auto_update": wanted})
            assert answer.status_code == 200, answer.text
            assert answer.json()["auto_update"] is wanted
            assert (await spec_of(world)).get("autoUpdate", False) is wanted
        for body in ({}, {"auto_update": "yes"}, {"auto_update": True, "more": 1}):
            assert (await client.post(f"{path}/auto-update", json=body)).status_code == 400


async def test_a_debug_container_follows_nothing(facade: Facade, world: FacadeInstallation) -> None:
    async with facade.client(world.key) as client:
        made_one = await client.post("/api/containers", json=world.body("web", debug=True))
        path = made_one.headers["location"]
        answer = await client.post(f"{path}/auto-update", json={"auto_update": True})
        assert answer.status_code == 400
        assert "production" in answer.json()["error"]


@pytest.mark.spec("6.14", "21.9")
@pytest.mark.parametrize("name", ["enabled", "connected", "github_app_connected"])
async def test_the_connection_is_switched_by_any_name(
    facade: Facade, world: FacadeInstallation, name: str
) -> None:
    async with facade.client(world.key) as client:
        path = await made(client, world)
        for wanted in (False, True):
            answer = await client.post(f"{path}/github-connection", json={name: wanted})
            assert answer.status_code == 200, answer.text
            assert answer.json()["github_app_connected"] is wanted


@pytest.mark.spec("22.13")
async def test_following_and_the_connection_hang_together(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        path = await made(client, world)
        await client.post(f"{path}/auto-update", json={"auto_update": True})
        cut = await client.post(f"{path}/github-connection", json={"enabled": False})
        assert (cut.status_code, cut.json()["code"]) == (409, "CONFLICT")
        await client.post(f"{path}/auto-update", json={"auto_update": False})
        cut = await client.post(f"{path}/github-connection", json={"enabled": False})
        assert cut.status_code == 200
        follow = await client.post(f"{path}/auto-update", json={"auto_update": True})
        assert (follow.status_code, follow.json()["code"]) == (409, "CONFLICT")
        bodies: tuple[dict[str, Any], ...] = (
            {},
            {"enabled": True, "connected": True},
            {"on": True},
        )
        for body in bodies:
            wrong = await client.post(f"{path}/github-connection", json=body)
            assert wrong.status_code == 400


@pytest.mark.spec("22.12")
async def test_a_relaunch_to_an_earlier_release_ceases_to_follow(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        path = await made(client, world)
        await client.post(f"{path}/auto-update", json={"auto_update": True})
        await reported(client, world, path, **READY, latestRelease=LATEST)
        answer = await client.post(f"{path}/relaunch", json={"tag": "v1.1.0"})
        assert answer.status_code == 200, answer.text
        assert answer.json()["auto_update"] is False
        assert (await spec_of(world)).get("autoUpdate", False) is False


async def test_a_relaunch_to_the_latest_release_keeps_following(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        path = await made(client, world)
        await client.post(f"{path}/auto-update", json={"auto_update": True})
        early = {**LATEST, "publishedAt": "2000-01-01T00:00:00Z"}
        await reported(client, world, path, **READY, latestRelease=early)
        answer = await client.post(f"{path}/relaunch", json={"tag": "v1.1.0"})
        assert answer.json()["auto_update"] is True


@pytest.mark.spec("22.12")
@pytest.mark.parametrize(("tag", "follows"), [("v1.1.0", False), ("v1.0.0", True)])
async def test_cancel_of_an_automatic_update_ceases_to_follow(
    facade: Facade, world: FacadeInstallation, tag: str, *, follows: bool
) -> None:
    async with facade.client(world.key) as client:
        path = await made(client, world)
        await world.enclave("web", name="web-a-1")
        await client.post(f"{path}/auto-update", json={"auto_update": True})
        update = {"enclave": "web-b-1", "uid": "0b", "revision": "b", "tag": tag}
        moving = {**update, "status": "started", "type": "blue_green"}
        await reported(client, world, path, **READY, latestRelease=LATEST, update=moving)
        assert (await client.post(f"{path}/update/cancel")).status_code == 204
        assert (await client.get(path)).json()["auto_update"] is follows


def signed(body: bytes, *, secret: str = WEBHOOK_SECRET) -> str:
    """Sign a body as a forge does."""
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


@pytest.mark.spec("22.17")
@pytest.mark.parametrize("forge", ["github", "gitea"])
async def test_a_release_webhook_lets_followers_look(
    facade: Facade, world: FacadeInstallation, forge: str
) -> None:
    async with facade.client(world.key) as client:
        path = await made(client, world)
        body = json.dumps({"action": "published", "repository": {"full_name": world.repo}}).encode()
        headers = {"content-type": "application/json"}
        if forge == "github":
            headers |= {
                "x-github-event": "release",
                "x-hub-signature-256": f"sha256={signed(body)}",
            }
        else:
            headers |= {"x-gitea-event": "release", "x-gitea-signature": signed(body)}

        async def told() -> int:
            answer = await client.post("/api/webhooks/releases", content=body, headers=headers)
            assert answer.status_code == 202, answer.text
            return int(answer.json()["deployments"])

        assert await told() == 0
        await client.post(f"{path}/auto-update", json={"auto_update": True})
        assert await told() == 1
        (deployment,) = (await world.kube.list(of(Deployment), world.namespace)).items
        assert deployment["metadata"]["annotations"][REQUESTED_AT_ANNOTATION]
        cut: dict[str, Any] = {"spec": {"autoUpdate": False, "githubConnected": False}}
        await world.kube.merge_patch(of(Container), "web", cut, world.namespace)

        async def ignored() -> bool:
            return await told() == 0

        await until(ignored, what="the cut to be seen")


async def test_releases_of_a_repository_are_announced_at_a_rate(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        path = await made(client, world)
        await client.post(f"{path}/auto-update", json={"auto_update": True})

        async def told(repo: str) -> httpx.Response:
            body = json.dumps({"repository": {"full_name": repo}}).encode()
            headers = {
                "content-type": "application/json",
                "x-gitea-event": "release",
                "x-gitea-signature": signed(body),
            }
            return await client.post("/api/webhooks/releases", content=body, headers=headers)

        async def refused() -> httpx.Response | None:
            answer = await told(world.repo)
            assert answer.status_code in {202, 429}, answer.text
            return answer if answer.status_code == 429 else None

        answer = await until(refused, what="a refusal")
        assert answer is not None
        assert answer.json()["code"] == "RATE_LIMITED"
        assert 1 <= int(answer.headers["retry-after"]) <= 5
        assert (await told(world.repo.upper())).status_code == 429
        assert (await told("nobody/follows-it")).status_code == 202


@pytest.mark.spec("22.17")
@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{}", {}, 401),
        (b"{}", {"x-hub-signature-256": "sha256=00"}, 401),
        (b"{}", {"x-hub-signature-256": "sha256=\u00e9"}, 401),
        (b"{}", {"x-hub-signature-256": signed(b"{}", secret="another")}, 401),
        (b"{}", {"x-hub-signature-256": signed(b"{} ")}, 401),
        (b"{}", {"x-hub-signature-256": signed(b"{}")}, 202),
        (b"{}", {"x-hub-signature-256": signed(b"{}"), "x-github-event": "ping"}, 202),
        (b"{}", {"x-hub-signature-256": signed(b"{}"), "x-github-event": "release"}, 400),
        (b"[", {"x-hub-signature-256": signed(b"["), "x-github-event": "release"}, 400),
    ],
)
async def test_other_events_than_releases_are_ignored(
    facade: Facade, body: bytes, headers: dict[str, str], status: int
) -> None:
    sent = {name.encode(): value.encode() for name, value in headers.items()}
    async with facade.client() as client:
        answer = await client.post(
            "/api/webhooks/releases",
            content=body,
            headers={b"content-type": b"application/json", **sent},
        )
        assert answer.status_code == status, answer.text


def changed(facade_settings: Path, name: str, **keys: Any) -> Path:
    """Write settings with other keys; a None leaves one out."""
    settings = {**yaml.safe_load(facade_settings.read_text()), **keys}
    path = facade_settings.with_name(name)
    kept = {key: value for key, value in settings.items() if value is not None}
    path.write_text(yaml.safe_dump(kept))
    return path


@pytest.mark.spec("22.14")
async def test_without_a_secret_nothing_is_connected(
    facade_settings: Path, world: FacadeInstallation
) -> None:
    with start_facade(changed(facade_settings, "no-webhooks.yml", webhooks=None)) as facade:
        async with facade.client(world.key) as client:
            path = await made(client, world)
            assert (await client.get(path)).json()["github_app_connected"] is False
            for status, wanted in ((400, True), (200, False), (400, True)):
                answer = await client.post(f"{path}/github-connection", json={"enabled": wanted})
                assert answer.status_code == status, answer.text
                assert status == 200 or "releaseSecretFile" in answer.json()["error"]
                assert (await client.get(path)).json()["github_app_connected"] is False
            told = await client.post("/api/webhooks/releases", json={})
            assert told.status_code == 404


def test_a_short_secret_is_refused_at_the_start(facade_settings: Path) -> None:
    facade_settings.with_name("short-secret").write_text("abc")
    webhooks = {"releaseSecretFile": "short-secret"}
    other = changed(facade_settings, "short.yml", webhooks=webhooks)
    with pytest.raises(RuntimeError, match="the facade exited"), start_facade(other):
        pass
