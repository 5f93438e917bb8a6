"""What an administrator does to a container in the dashboard, and what nobody else may."""

import html
import re

import httpx
import pytest

from tests.support.programs.dashboard import Dashboard, Person
from tests.support.programs.facade import ADMIN, COMMIT_OF_TAG, Facade, FacadeInstallation
from tests.support.waiting import until

SERVES = {"phase": "ready", "currentTag": "v1.0.0"}


async def made(facade: Facade, world: FacadeInstallation, **status: object) -> str:
    """Create a container that serves, and return the path of its page."""
    async with facade.client(world.key) as client:
        answer = await client.post("/api/containers", json=world.body("web"))
        assert answer.status_code == 201, answer.text
    await world.report("web", **(status or SERVES))
    return f"/o/{world.organization}/containers/{answer.json()['id']}"


async def page_of(person: Person, path: str, word: str) -> httpx.Response:
    """Wait until a container's page shows a status."""

    async def shown() -> httpx.Response | None:
        response = await person.get(path)
        there = response.status_code == 200 and f">{word}</span>" in response.text
        return response if there else None

    found = await until(shown, what=f"{word} at {path}")
    assert found is not None
    return found


def version_on(page: httpx.Response) -> str:
    """Return the version that a page's forms carry."""
    found = re.search(r'name="version" value="([^"]*)"', page.text)
    assert found is not None, page.text
    return html.unescape(found[1])


async def test_it_is_stopped_and_started(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    path = await made(facade, world)
    async with dashboard.signed_in(ADMIN) as person:
        page = await page_of(person, path, "Running")
        assert f'action="{path}/stop"' in page.text
        assert f'action="{path}/start"' not in page.text
        stopped = await person.fill(f"{path}/stop", version=version_on(page))
        assert stopped.status_code == 303
        assert stopped.headers["location"].startswith(f"{path}?seen=")
        assert "Stopping</span>" in (await person.get(stopped.headers["location"])).text
        await world.report("web", phase="stopped")
        page = await page_of(person, path, "Stopped")
        assert f'action="{path}/stop"' not in page.text
        started = await person.fill(f"{path}/start", version=version_on(page), tag="v1.1.0")
        assert started.status_code == 303, started.text
    container = await world.container("web")
    assert container is not None
    assert (container["spec"]["tag"], container["spec"].get("state", "Running")) == (
        "v1.1.0",
        "Running",
    )
    rows = [(row.action, row.result, row.key_id) for row in await world.audit()]
    assert ("container.stop", "200", None) in rows
    assert ("container.start", "200", None) in rows
    async with facade.client(world.key) as client:
        shown = (await client.get("/api/audit", params={"action": "container.stop"})).json()
    assert [(row["via"], row["actor"], row["key_id"]) for row in shown] == [
        ("session", ADMIN, None)
    ]
    assert shown[0]["session_id"]


async def test_a_wrong_tag_is_explained_and_mended(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    path = await made(facade, world)
    async with dashboard.signed_in(ADMIN) as person:
        page = await page_of(person, path, "Running")
        for tag, why in (("v9", "v9"), ("two words", "tag")):
            refused = await person.fill(f"{path}/relaunch", version=version_on(page), tag=tag)
            assert refused.status_code == 400
            assert "Not saved" in refused.text
            assert why in refused.text
            assert f'value="{tag}"' in refused.text, "what was typed stays"
        container = await world.container("web")
        assert container is not None
        assert container["spec"]["tag"] == "v1.0.0"
        done = await person.fill(f"{path}/relaunch", version=version_on(page), tag="v1.1.0")
        assert done.status_code == 303
        late = await person.fill(f"{path}/stop", version=version_on(page))
        assert late.status_code == 412
        assert "Not saved" in late.text
    container = await world.container("web")
    assert container is not None
    assert container["spec"]["tag"] == "v1.1.0"


async def test_a_deletion_asks_for_the_name(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    path = await made(facade, world)
    async with dashboard.signed_in(ADMIN) as person:
        page = await page_of(person, path, "Running")
        for name in ("", "other"):
            refused = await person.fill(f"{path}/delete", version=version_on(page), name=name)
            assert refused.status_code == 400
            assert "write web to delete" in refused.text
        done = await person.fill(f"{path}/delete", version=version_on(page), name="web")
        where = path.rpartition("/")[0]
        assert (done.status_code, done.headers["location"]) == (303, where)
        assert (await person.get(path)).status_code == 404
    assert await world.container("web") is None


async def test_a_staged_update_is_accepted_or_cancelled(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    update = {
        "enclave": "web-b-1", "uid": "0b", "revision": "b", "tag": "v1.1.0",
        "status": "deploying", "type": "blue_green",
    }  # fmt: skip
    path = await made(facade, world, **SERVES, activeEnclave="web-a-1", update=update)
    async with dashboard.signed_in(ADMIN) as person:

        async def offered() -> httpx.Response | None:
            response = await person.get(path)
            return response if f'action="{path}/cancel"' in response.text else None

        page = await until(offered, what="the form that cancels")
        assert page is not None
        assert f'action="{path}/accept"' not in page.text
        early = await person.fill(f"{path}/accept", version=version_on(page))
        assert early.status_code == 409
        assert "wait until its status is ready" in early.text


async def test_a_member_reads_only(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    path = await made(facade, world)
    member = "mia@example.test"
    people = [{"user": ADMIN, "role": "Admin"}, {"user": member, "role": "Member"}]
    await world.change_organization(members=people)
    async with dashboard.signed_in(member) as person:
        page = await page_of(person, path, "Running")
        assert "<form" not in page.text.partition("<main")[2]
        assert "You can view this organization" in page.text
        refused = await person.fill(f"{path}/stop")
        assert refused.status_code == 403
        assert "needs the role Admin or Developer" in refused.text
    container = await world.container("web")
    assert container is not None
    assert container["spec"].get("state", "Running") == "Running"
    rows = [(row.actor, row.action, row.result) for row in await world.audit()]
    assert (member, "container.stop", "403 FORBIDDEN") in rows


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{}", "application/json", 415),
        (b"tag=a&tag=b", "application/x-www-form-urlencoded", 400),
        (b"tag", "application/x-www-form-urlencoded", 400),
        (b"tag=%ff", "application/x-www-form-urlencoded", 400),
        (b"tag=" + b"x" * 70_000, "application/x-www-form-urlencoded", 413),
        (
            b"&".join(b"f%d=" % each for each in range(300)),
            "application/x-www-form-urlencoded",
            400,
        ),
    ],
)
async def test_a_wrong_form_changes_nothing(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation, body: bytes, kind: str,
    status: int,
) -> None:  # fmt: skip
    path = await made(facade, world)
    async with dashboard.signed_in(ADMIN) as person:
        await page_of(person, path, "Running")
        given = {
            "Cookie": f"__Host-cloister={person.cookie}",
            "Sec-Fetch-Site": "same-origin",
            "Content-Type": kind,
        }
        refused = await person.client.post(f"{path}/stop", content=body, headers=given)
        assert refused.status_code == status, refused.text
        unknown = await person.fill(f"{path}/explode")
        assert unknown.status_code == 404
    container = await world.container("web")
    assert container is not None
    assert container["spec"].get("state", "Running") == "Running"


async def test_a_container_of_others_cannot_be_changed(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation,
    other_world: FacadeInstallation,
) -> None:  # fmt: skip
    path = await made(facade, other_world)
    user = f"{world.organization}@example.test"
    await world.change_organization(members=[{"user": user, "role": "Admin"}])
    async with dashboard.signed_in(user) as person:

        async def known() -> bool:
            return (await person.get(f"/o/{world.organization}/containers")).status_code == 200

        await until(known, what="the membership")
        identifier = path.rpartition("/")[2]
        for place in (path, f"/o/{world.organization}/containers/{identifier}"):
            assert (await person.fill(f"{place}/stop")).status_code == 404
    container = await other_world.container("web")
    assert container is not None
    assert container["spec"].get("state", "Running") == "Running"


async def test_settings_are_changed_and_only_those(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client, dashboard.signed_in(ADMIN) as person:
        made = await client.post("/api/containers", json=world.body("web", variables={"A": "1"}))
        identifier = made.json()["id"]
        await world.report("web", phase="ready", currentTag="v1.0.0", currentCommit=COMMIT_OF_TAG)
        path = f"/o/{world.organization}/containers/{identifier}/settings"

        async def shown() -> bool:
            return "A=1" in (await person.get(path)).text

        await until(shown, what="the settings")
        refused = await person.fill(path, tag="v1.0.0", variables="A=1\r\nB", staging="")
        assert refused.status_code == 400
        assert "has no =" in refused.text
        assert "A=1\nB" in refused.text.replace("\r", ""), "what was typed stays"
        done = await person.fill(path, tag="v1.0.0", variables="A=1\r\nGREETING=hello")
        assert done.status_code == 303, done.text
        item = await world.container("web")
        assert item is not None
        assert item["spec"]["variables"] == [
            {"name": "A", "value": "1"},
            {"name": "GREETING", "value": "hello"},
        ]
        assert item["spec"]["staging"] is False
        following = path.replace("settings", "auto-update")
        assert (await person.fill(following, wanted="on")).status_code == 303
        item = await world.container("web")
        assert item is not None
        assert item["spec"]["autoUpdate"] is True
        connected = path.replace("settings", "github-connection")
        assert (await person.fill(connected, wanted="on")).status_code == 303

        async def followed() -> bool:
            record = (await client.get(f"/api/containers/{identifier}")).json()
            return (record["auto_update"], record["github_app_connected"]) == (True, True)

        await until(followed, what="both settings at the other process")
        assert (await person.fill(path.replace("settings", "stop"))).status_code == 303
        await world.report("web", phase="stopped")
        await page_of(person, path.rpartition("/")[0], "Stopped")
        assert "Save and start" in (await person.get(path)).text
        started = await person.fill(path, tag="v1.0.0", variables="A=2")
        assert started.status_code == 303, started.text
    actions = [row.action for row in await world.audit()]
    assert actions.count("container.start") == 1, "as the REST API calls it"


async def test_what_a_gitops_tool_manages_is_shown_as_its_manifest(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    spec = {"repo": world.repo, "tag": "v1.0.0"}
    await world.apply_as("kustomize-controller", {"metadata": {"name": "flux"}, "spec": spec})
    async with facade.client(world.key) as client, dashboard.signed_in(ADMIN) as person:

        async def listed() -> str:
            found = (await client.get("/api/containers")).json()
            return str(found[0]["id"]) if found else ""

        identifier = await until(listed, what="the container")
        path = f"/o/{world.organization}/containers/{identifier}/settings"

        async def shown() -> bool:
            return "kustomize-controller" in (await person.get(path)).text

        await until(shown, what="who manages it")
        refused = await person.fill(path, tag="v1.1.0")
        assert refused.status_code == 409
        assert "Commit this instead" in refused.text
        assert "tag: v1.1.0" in refused.text
