"""Pages that show: deployments, API keys, usage, billing, models, audit, hosts, settings."""

import re
from typing import Any

import pytest

from cloister_api.usage.ingest import PATH
from cloister_api.utilization.buckets import SeriesKey, UsageInterval, add_interval
from cloister_api.utilization.store import UtilizationStore
from cloister_clients.clock import utc_now
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Organization
from cloister_crds.measurement import entries
from tests.api.dashboard.test_configure import opened
from tests.api.facade.test_measurement import SNP, measurement, serve
from tests.support.builders.catalog import RECORD
from tests.support.builders.usage import event, report, sign
from tests.support.cluster.clusters import unique
from tests.support.programs.dashboard import Dashboard
from tests.support.programs.facade import (
    ADMIN,
    COMMIT_OF_TAG,
    Facade,
    FacadeInstallation,
    run_command,
)
from tests.support.waiting import until

PAGES = (
    "containers", "deployments", "secrets", "ssh-keys", "domains", "registries", "api-keys",
    "usage", "models", "billing", "admin-keys", "members", "audit", "hosts", "settings",
)  # fmt: skip
FOR_ADMINS = {"admin-keys", "audit"}


async def test_every_page_is_in_the_navigation_and_there(
    dashboard: Dashboard, world: FacadeInstallation, other_world: FacadeInstallation
) -> None:
    user = "member@example.test"
    people = [{"user": ADMIN, "role": "Admin"}, {"user": user, "role": "Member"}]
    await world.change_organization(members=people)
    async with (
        dashboard.signed_in(ADMIN) as person,
        dashboard.signed_in(user) as member,
        dashboard.person() as nobody,
    ):
        await opened(member, world, "settings", "Entitlements")
        shown = await opened(person, world, "settings", "Entitlements")
        base = shown.rpartition("/")[0]
        links = re.findall(rf'href="{base}/([a-z-]+)"', (await person.get(shown)).text)
        assert set(PAGES) <= set(links)
        for page in PAGES:
            found = await person.get(f"{base}/{page}")
            assert found.status_code == 200, page
            assert f'href="{base}/{page}" aria-current="page"' in found.text
            for_member = await member.get(f"{base}/{page}")
            assert for_member.status_code == (403 if page in FOR_ADMINS else 200), page
            foreign = await member.get(f"/o/{other_world.organization}/{page}")
            assert foreign.status_code == 404, page
            unknown = await nobody.get(f"{base}/{page}")
            assert unknown.status_code == 303, page
            assert unknown.headers["location"] == f"/session?next={base}/{page}", page
        members_links = re.findall(rf'href="{base}/([a-z-]+)"', (await member.get(shown)).text)
        assert not FOR_ADMINS & set(members_links)


async def test_a_release_is_brought_to_the_ticked_containers(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        made = {
            name: (await client.post("/api/containers", json=world.body(name))).json()["id"]
            for name in ("a", "b", "c")
        }
    for name in ("a", "b"):
        await world.report(name, phase="ready", currentTag="v1.0.0", currentCommit=COMMIT_OF_TAG)
    async with dashboard.signed_in(ADMIN) as person:
        listed = await opened(person, world, "deployments", "2 running")
        (one,) = re.findall(rf'href="({listed}/[^"]+)"', (await person.get(listed)).text)
        page = (await person.get(one)).text
        assert all(f'name="instance:{each}"' in page for each in made.values())
        refused = await person.fill(f"{one}/update", tag="v1.1.0")
        assert refused.status_code == 400
        assert "instance_ids" in refused.text
        refused = await person.fill(f"{one}/update", tag="v9", **{f"instance:{made['a']}": "on"})
        assert refused.status_code == 400
        assert 'value="v9"' in refused.text
        ticked = {f"instance:{made[name]}": "on" for name in ("a", "c")}
        done = await person.fill(f"{one}/update", tag="v1.1.0", staging="wait", **ticked)
        assert done.status_code == 200, done.text
        results = done.text.partition("Result")[2].partition("</section>")[0]
        assert "Updating" in results
        assert "instance is not running" in results
        changed = await world.container("a")
        assert changed is not None
        assert (changed["spec"]["tag"], changed["spec"]["relaunchStaging"]) == ("v1.1.0", True)
        unchanged = await world.container("b")
        assert unchanged is not None
        assert unchanged["spec"]["tag"] == "v1.0.0"
        assert (await person.fill(one, staging="on")).status_code == 303
        assert "Wait for review" in (await person.get(listed)).text
        assert (await person.get(f"{listed}/{made['a']}")).status_code == 404


async def test_an_api_key_is_made_shown_changed_and_deleted(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    async with dashboard.signed_in(ADMIN) as person:
        path = await opened(person, world, "api-keys", "t enabled for this organization")
        assert (await person.fill(path, name="search")).status_code == 402
        await world.change_organization(billing={"tokenBilling": True})
        await opened(person, world, "api-keys", "New API key")
        refused = await person.fill(path, name="search", max_tokens="many")
        assert refused.status_code == 400
        assert 'id="max_tokens-error"' in refused.text
        assert 'value="search"' in refused.text
        made = await person.fill(path, name="search", days="30", max_tokens="1000", retry="r1")
        assert made.status_code == 303, made.text
        page = (await person.get(path)).text
        (number,) = re.findall(rf'action="{path}/(\d+)/reveal"', page)
        shown = await person.fill(f"{path}/{number}/reveal")
        assert shown.headers["cache-control"] == "no-store"
        value = shown.text.strip()
        async with facade.client(world.key) as client:
            (record,) = (await client.get("/api/keys")).json()
        assert record["key"] == value
        assert value not in page
        assert "of 1,000" in page
        changed = await person.fill(f"{path}/{number}/change", name="find", max_tokens="")
        assert changed.status_code == 303
        page = (await person.get(path)).text
        assert "find" in page
        assert "of 1,000" not in page
        assert (await person.fill(f"{path}/{number}/change", disabled="true")).status_code == 303
        assert "Enable<" in (await person.get(path)).text
        assert (await person.fill(f"{path}/{number}/delete")).status_code == 303
        assert (await person.fill(f"{path}/{number}/delete")).status_code == 404


async def test_the_key_of_somebody_else_is_switched_off_and_not_shown(
    dashboard: Dashboard, world: FacadeInstallation
) -> None:
    second = "bob@example.test"
    people = [{"user": ADMIN, "role": "Admin"}, {"user": second, "role": "Admin"}]
    await world.change_organization(billing={"tokenBilling": True})
    async with dashboard.signed_in(ADMIN) as person:
        path = await opened(person, world, "api-keys", "New API key")
        assert (await person.fill(path, name="mine")).status_code == 303
        await world.change_organization(members=people)
    async with dashboard.signed_in(second) as other:
        await opened(other, world, "api-keys", "by somebody else")
        page = (await other.get(path)).text
        (number,) = re.findall(rf'action="{path}/(\d+)/delete"', page)
        assert "/reveal" not in page
        assert (await other.fill(f"{path}/{number}/reveal")).status_code == 403
        assert (await other.fill(f"{path}/{number}/change", disabled="true")).status_code == 303
        assert (await other.fill(f"{path}/{number}/delete")).status_code == 303


async def test_usage_is_drawn_and_downloaded(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    await world.change_organization(billing={"tokenBilling": True})
    config = ("--config", str(world.settings))
    name = unique("router")
    secret = run_command("reporter", "create", name, *config).stdout.strip()
    async with dashboard.signed_in(ADMIN) as person:
        await opened(person, world, "api-keys", "New API key")
        path = await opened(person, world, "usage", "No usage")
        async with facade.client(world.key) as admin, facade.client() as client:

            async def made() -> str:
                answer = await admin.post("/api/keys", json={"name": "ci"})
                return str(answer.json()["key"]) if answer.status_code == 200 else ""

            key = await until(made, what="token billing at the other process")
            nonce = unique("d")
            events: list[Any] = [event(f"{nonce}-{n}", utc_now(), api_key=key) for n in range(2)]
            body = report(nonce, events)
            signed = sign(secret, nonce, body, utc_now(), name)
            headers = {**signed, "content-type": "application/json"}
            assert (await client.post(PATH, content=body, headers=headers)).status_code == 200
        page = (await person.get(f"{path}?time=1h&by=key&what=tokens")).text
        assert "<svg" in page
        assert "220</p>" in page
        assert '<bdi class="name">ci</bdi>' in page
        assert "north" in page
        file = await person.get(f"{path}/export?time=1h")
        assert file.headers["content-type"].startswith("text/csv")
        assert "ci,north,2,200,20," in file.text
        for query in ("time=2h", "by=day", "what=money"):
            assert (await person.get(f"{path}?{query}")).status_code == 400


async def test_the_audit_trail_is_chosen_turned_over_and_downloaded(
    dashboard: Dashboard, world: FacadeInstallation
) -> None:
    async with dashboard.signed_in(ADMIN) as person:
        path = await opened(person, world, "audit", "session.create")
        for number in range(52):
            await person.fill(f"/o/{world.organization}/ssh-keys/none-{number}/delete")
        page = (await person.get(f"{path}?action=ssh-key.delete")).text
        assert page.count(">ssh-key.delete</code>") == 50
        (older,) = re.findall(r'href="([^"]+)">Older<', page)
        rest = (await person.get(older.replace("&amp;", "&"))).text
        assert rest.count(">ssh-key.delete</code>") == 2
        assert "Older" not in rest
        assert "No activity matches" in (await person.get(f"{path}?actor=nobody")).text
        file = await person.get(f"{path}/export?action=ssh-key.delete")
        assert file.text.count("ssh-key.delete") == 52
        assert (await person.get(f"{path}?cursor=none")).status_code == 400
        assert (await person.get(f"{path}?actor={'x' * 300}")).status_code == 400


async def test_a_container_has_utilization_measurement_and_events(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        made = (await client.post("/api/containers", json=world.body("web"))).json()["id"]
    where = f"containers/{made}"
    async with dashboard.signed_in(ADMIN) as person:
        path = await opened(person, world, f"{where}/metrics", "No metrics")
        sums: dict[tuple[int, SeriesKey, int], list[int]] = {}
        present = await world.kube.get(of(Organization), world.organization)
        now = utc_now().timestamp()
        series = (present["metadata"]["uid"], made)
        add_interval(sums, UsageInterval(series, now - 60, now, 1, 2, 2 << 20, 8 << 20))
        async with world.ledger() as engine:
            await UtilizationStore(engine).add(sums)
        drawn = (await person.get(f"{path}?time=5m")).text
        assert "<polyline" in drawn
        assert "50.0" in drawn
        assert (await person.get(f"{path}?time=x")).status_code == 400
        measured = await opened(person, world, f"{where}/measurement", "Proof: web")
        assert "cloister-verify" not in (await person.get(measured)).text
        await serve(world, "web", entries(measurement(world, SNP)))

        async def published() -> bool:
            return "cloister-verify" in (await person.get(measured)).text

        await until(published, what="the measurement")
        page = (await person.get(measured)).text
        assert measurement(world, SNP).digest in page
        assert "proves nothing" in page
        events = await opened(person, world, f"{where}/events", "container.create")
        assert "No events in the last hour" in (await person.get(events)).text


async def test_the_catalog_is_shown_and_searched(
    dashboard: Dashboard, world: FacadeInstallation
) -> None:
    async with dashboard.signed_in(ADMIN) as person:
        path = await opened(person, world, "models", RECORD["name"])
        page = (await person.get(path)).text
        assert "128,000" in page
        assert "Deprecated on 2027-01-31" in page
        assert RECORD["name"] in (await person.get(f"{path}?search=NORTH")).text
        none = (await person.get(f"{path}?search=<b>")).text
        assert "No models match" in none
        assert "&lt;b&gt;" in none


@pytest.mark.parametrize("page", ["metrics", "measurement", "events"])
async def test_what_is_not_there_has_no_pages(
    dashboard: Dashboard, world: FacadeInstallation, page: str
) -> None:
    async with dashboard.signed_in(ADMIN) as person:
        await opened(person, world, "containers", "Run your first container")
        unknown = "00000000-0000-4000-8000-000000000000"
        found = await person.get(f"/o/{world.organization}/containers/{unknown}/{page}")
        assert found.status_code == 404
