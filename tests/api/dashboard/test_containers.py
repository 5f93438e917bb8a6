"""The pages of organizations and containers, read without a script."""

import re

from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Container, Organization
from tests.support.programs.dashboard import Dashboard
from tests.support.programs.facade import ADMIN, Facade, FacadeInstallation
from tests.support.waiting import until

CONDITION = {
    "message": "So it is.", "lastTransitionTime": "2026-11-27T00:00:00Z", "observedGeneration": 1,
}  # fmt: skip


async def test_organizations_are_those_that_name_the_user(
    dashboard: Dashboard, world: FacadeInstallation, other_world: FacadeInstallation
) -> None:
    async with dashboard.signed_in(ADMIN) as person, dashboard.signed_in("nobody@x.test") as eve:
        page = await person.shows("/organizations", world.organization)
        assert other_world.organization in page.text
        none = await eve.get("/organizations")
        assert "No organization names" in none.text
        assert "kubectl edit organization" in none.text
        assert world.organization not in none.text
        refused = await eve.get(f"/o/{world.organization}/containers")
        unknown = await eve.get("/o/no-such-organization/containers")
        assert (refused.status_code, unknown.status_code) == (404, 404)
        strip = re.compile(r"<code>[0-9a-f-]{36}</code>")
        assert strip.sub("", refused.text) == strip.sub("", unknown.text)


async def test_one_organization_is_opened_at_once(
    dashboard: Dashboard, world: FacadeInstallation
) -> None:
    user = f"{world.organization}@example.test"
    await world.change_organization(members=[{"user": user}])
    async with dashboard.signed_in(user) as person:

        async def led() -> str:
            return str((await person.get("/organizations")).headers.get("location", ""))

        where = f"/o/{world.organization}/containers"
        assert await until(led, what="the way to the organization") == where
        assert "Run your first container" in (await person.get(where)).text
        assert (await person.get(f"/o/{world.organization}")).headers["location"] == where


async def test_a_container_is_shown_as_it_is(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        made = await client.post("/api/containers", json=world.body("web"))
        assert made.status_code == 201, made.text
        identifier = made.json()["id"]
    conditions = [
        {
            "type": "Ready", "status": "False", "reason": "ImageNotFound",
            "message": 'The image <b onclick="x">web</b> is not there.',
            "lastTransitionTime": "2026-11-27T00:00:00Z", "observedGeneration": 1,
        }
    ]  # fmt: skip
    await world.report("web", phase="failed", conditions=conditions, observedGeneration=1)
    path = f"/o/{world.organization}/containers"
    async with dashboard.signed_in(ADMIN) as person:
        page = await person.shows(path, "Failed")
        assert f'href="{path}/{identifier}"' in page.text
        assert re.search(r'<span class="status bad">.*Failed</span>', page.text)
        detail = await person.shows(f"{path}/{identifier}", "is not there.")
        assert "The requested release isn&#39;t serving" in detail.text
        assert "<b onclick" not in detail.text
        assert "&lt;b onclick=" in detail.text
        for unknown in ("00000000-0000-4000-8000-000000000000", "x"):
            assert (await person.get(f"{path}/{unknown}")).status_code == 404


def counted(situation: str, count: int) -> str:
    """Return how the filter of a situation shows how many there are."""
    return f'{situation} <span class="dim num">{count}</span>'


async def test_the_list_follows_what_is_created_changed_and_deleted(
    dashboard: Dashboard, world: FacadeInstallation
) -> None:
    path, spec = f"/o/{world.organization}/containers", {"repo": "acme/web", "tag": "v1.0.0"}
    managed = "<bdi>Flux</bdi>"
    async with dashboard.signed_in(ADMIN) as person:
        await person.shows(path, "Run your first container")
        await world.apply_as("kustomize-controller", {"metadata": {"name": "flux"}, "spec": spec})
        for name in ("ada", "bob"):
            await world.apply_as("kubectl", {"metadata": {"name": name}, "spec": spec})
        page = await person.shows(path, counted("In progress", 3), managed)
        assert page.text.count(managed) == 1, "kubectl is nobody who would take changes back"
        failed = {"type": "Ready", "status": "False", "reason": "ImageNotFound"}
        await world.report("ada", phase="failed", conditions=[CONDITION | failed])
        page = await person.shows(
            path, counted("Failed", 1), counted("In progress", 2), "Image not found"
        )
        assert page.text.index(">ada<") < page.text.index(">bob<")
        successor = {"metadata": {"name": "cid"}, "spec": {**spec, "replaces": "bob"}}
        await world.apply_as("kubectl", successor)
        page = await person.shows(path, ">cid<", counted("In progress", 2))
        assert ">bob<" not in page.text, "it is on the page of the one that replaces it"
        await world.kube.delete(of(Container), "cid", world.namespace)
        page = await person.shows(path, ">bob<", counted("In progress", 2))
        assert ">cid<" not in page.text


async def test_who_raises_a_limit_is_said_where_it_is_reached(
    dashboard: Dashboard, world: FacadeInstallation
) -> None:
    path, words = f"/o/{world.organization}/containers", "ask your administrator for a higher limit"
    counts = {"status": {"counts": {"containers": 1, "ready": 1, "failed": 0}}}
    await world.kube.merge_patch(of(Organization), world.organization, counts, subresource="status")
    async with dashboard.signed_in(ADMIN) as person:
        assert words not in (await person.shows(path, "1 of 10 used")).text
        await world.change_organization(limits={"containers": 1})
        full = await person.shows(path, words)
        assert f'href="{path}/new"' in full.text, "one that takes over from another is possible"


async def test_commands_of_pages_name_what_has_to_be_set(
    dashboard: Dashboard, world: FacadeInstallation
) -> None:
    async with dashboard.signed_in(ADMIN) as person:
        for page in ("containers", "members", "usage", "containers/new"):
            shown = await person.shows(f"/o/{world.organization}/{page}", "Do this with the API")
            assert "$CLOISTER_URL/api/" in shown.text
            assert "<code>CLOISTER_URL</code> is the address of the Admin API" in shown.text


async def test_a_container_of_another_organization_is_not_there(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation,
    other_world: FacadeInstallation,
) -> None:  # fmt: skip
    async with facade.client(other_world.key) as client:
        made = await client.post("/api/containers", json=other_world.body("web"))
        identifier = made.json()["id"]
    async with dashboard.signed_in(ADMIN) as person:
        own = f"/o/{other_world.organization}/containers/{identifier}"
        await person.shows(own, "web")
        refused = await person.get(f"/o/{world.organization}/containers/{identifier}")
        assert refused.status_code == 404


async def test_static_files_are_kept_for_ever_and_compressed(dashboard: Dashboard) -> None:
    async with dashboard.person() as person:
        text = (await person.get("/session")).text
        address = re.search(r'href="(/static/[0-9a-f]{16}/dashboard\.css)"', text)
        assert address is not None
        style = await person.get(address[1])
        assert style.headers["content-encoding"] == "gzip"
        assert "immutable" in style.headers["cache-control"]
        assert len(style.content) > 1000
        plain = await person.get(address[1], **{"Accept-Encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert plain.content == style.content
