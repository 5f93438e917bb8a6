"""Sign in by a link, who counts as signed in, and what ends that."""

import re
from pathlib import Path

import httpx
import pytest
import yaml

from tests.support.ports import free_port
from tests.support.programs.dashboard import COOKIE, Dashboard
from tests.support.programs.facade import ADMIN, Facade, FacadeInstallation, run_command
from tests.support.waiting import until


async def test_a_link_signs_in_once(dashboard: Dashboard) -> None:
    link = dashboard.link(ADMIN)
    async with dashboard.person() as person, dashboard.person() as other:
        shown = await person.get(link)
        assert shown.status_code == 200
        assert ADMIN in shown.text
        assert not person.cookie, "to open a link changes nothing"
        used = await person.post(link)
        assert (used.status_code, used.headers["location"]) == (303, "/organizations")
        kept = used.headers["set-cookie"]
        for word in ("HttpOnly", "Path=/", "SameSite=lax", "Secure", "Max-Age=86400"):
            assert word in kept, kept
        assert "Domain" not in kept
        for again in (await other.post(link), await other.get(link)):
            assert again.status_code == 403
            assert "was used, has expired, or never existed" in again.text
        assert not other.cookie
    assert link.rpartition("/")[2] not in dashboard.facade.log.read_text()


async def test_another_sign_in_ends_the_one_before(dashboard: Dashboard) -> None:
    async with dashboard.signed_in("first@example.test") as person, dashboard.person() as copied:
        copied.cookie = person.cookie
        assert (await person.post(dashboard.link("second@example.test"))).status_code == 303
        assert "second@example.test" in (await person.get("/session")).text
        assert (await copied.get("/organizations")).headers["location"] == "/session"


async def test_an_unknown_link_signs_nobody_in(dashboard: Dashboard) -> None:
    async with dashboard.person() as person:
        for token in ("made-up", "A" * 43, "%00" * 43):
            assert (await person.post(f"/session/once/{token}")).status_code == 403
        for cookie in ("x", "A" * 43, '"'):
            person.cookie = cookie
            assert (await person.get("/organizations")).headers["location"] == "/session"
        person.cookie = ""
        assert not person.cookie


async def test_without_a_session_pages_lead_to_the_sign_in(dashboard: Dashboard) -> None:
    async with dashboard.person() as person:
        for path, to in (
            ("/", "/session"),
            ("/organizations", "/session"),
            ("/o/any/containers?page=2", "/session?next=/o/any/containers%3Fpage%3D2"),
            ("//attacker.test/", "/session"),
        ):
            response = await person.get(path)
            assert (response.status_code, response.headers["location"]) == (303, to)
        page = await person.get("/session")
        assert "cloister session link" in page.text


async def test_a_sign_out_ends_the_session_in_every_browser(
    dashboard: Dashboard, world: FacadeInstallation
) -> None:
    async with dashboard.signed_in(ADMIN) as person, dashboard.person() as copied:
        copied.cookie = person.cookie
        assert (await copied.get("/organizations?all")).status_code == 200
        out = await person.post("/session/end")
        assert (out.status_code, out.headers["location"]) == (303, "/session")
        assert out.headers["clear-site-data"] == '"cache"'
        assert not person.cookie
        assert (await copied.get("/organizations?all")).headers["location"] == "/session"
    rows = [(row.action, row.actor) for row in await world.audit()]
    assert ("session.create", ADMIN) in rows
    assert ("session.end", ADMIN) in rows


async def test_a_command_lists_and_ends_sessions(dashboard: Dashboard) -> None:
    async with dashboard.signed_in("grace@example.test") as person:
        (line,) = [each for each in dashboard.command("list").splitlines() if "grace@" in each]
        ended = dashboard.command("end", line.partition("\t")[0])
        assert "of grace@example.test ended" in ended
        assert (await person.get("/organizations")).headers["location"] == "/session"
    assert "grace@" not in dashboard.command("list")
    refused = run_command(
        "session", "end", "--user", "grace@example.test",
        "--config", str(dashboard.settings), check=False,
    )  # fmt: skip
    assert refused.returncode == 1
    assert "no such session lasts" in refused.stderr


@pytest.mark.parametrize("user", ["", "two words", "x" * 254])
def test_a_link_for_no_user_is_refused(dashboard: Dashboard, user: str) -> None:
    given = ("session", "link", "--user", user, "--config", str(dashboard.settings))
    refused = run_command(*given, check=False)
    assert refused.returncode == 1
    assert "is not a user name" in refused.stderr


def test_without_a_dashboard_nobody_gets_a_link(world: FacadeInstallation) -> None:
    given = ("session", "link", "--user", ADMIN, "--config", str(world.settings))
    refused = run_command(*given, check=False)
    assert refused.returncode == 1
    assert "set dashboard.address" in refused.stderr


async def test_a_session_counts_at_the_dashboard_alone(
    dashboard: Dashboard, facade: Facade
) -> None:
    async with dashboard.signed_in(ADMIN) as person:
        cookie = {"Cookie": f"{COOKIE}={person.cookie}"}
        for base in (facade.base, dashboard.facade.base):
            async with httpx.AsyncClient(base_url=base, headers=cookie) as client:
                assert (await client.get("/api/containers")).status_code == 401
                assert (await client.get("/organizations")).status_code == 404
                assert (await client.get("/session")).status_code == 404
        for path in ("/api/shim/check", "/docs", "/openapi.json", "/healthz"):
            assert (await person.get(path)).status_code == 404


async def test_requests_of_other_pages_and_hosts_are_refused(dashboard: Dashboard) -> None:
    async with dashboard.signed_in(ADMIN) as person:
        form = "/session/end"
        for site in ("same-site", "cross-site", "none"):
            refused = await person.post(form, **{"Sec-Fetch-Site": site})
            assert refused.status_code == 403, site
        fetched = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}
        assert (await person.get("/organizations", **fetched)).status_code == 403
        linked = await person.get("/organizations?all", **{"Sec-Fetch-Site": "cross-site"})
        assert linked.status_code == 200, "a link from a mail leads here"
        elsewhere = await person.get("/organizations", Host="console.attacker.test")
        assert elsewhere.status_code == 421
        assert dashboard.address in elsewhere.text
        cookie = {"Cookie": f"{COOKIE}={person.cookie}"}
        async with httpx.AsyncClient(base_url=dashboard.address, headers=cookie) as old:
            assert (await old.post(form)).status_code == 403
            assert (await old.post(form, headers={"Origin": "null"})).status_code == 403
            own = await old.post(form, headers={"Origin": dashboard.address})
            assert own.status_code == 303


async def test_every_response_carries_the_headers(dashboard: Dashboard) -> None:
    async with dashboard.person() as person:
        for path in ("/session", "/nowhere", "/session/once/x", "/static/0/none.css"):
            headers = (await person.get(path)).headers
            assert headers["content-security-policy"].startswith("default-src 'none'")
            assert "script-src 'self';" in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "same-origin"
            assert headers["x-request-id"]


async def test_who_is_demoted_or_removed_is_so_at_the_next_page(
    dashboard: Dashboard, world: FacadeInstallation
) -> None:
    path = f"/o/{world.organization}/containers"
    async with dashboard.signed_in(ADMIN) as person:

        async def shows(word: str) -> bool:
            page = await person.get(path)
            return page.status_code == 200 and f"{word} of {world.organization}" in page.text

        await until(lambda: shows("Administrator"), what="the role of an administrator")
        await world.change_organization(members=[{"user": ADMIN, "role": "Member"}])
        await until(lambda: shows("Member"), what="the role of a member")
        await world.change_organization(members=[{"user": "eve@example.test", "role": "Admin"}])

        async def gone() -> bool:
            return (await person.get(path)).status_code == 404

        await until(gone, what="the end of the membership")
        assert (await person.get("/session")).status_code == 200, "still signed in"


def test_one_port_for_both_is_refused(dashboard_settings: Path, tmp_path: Path) -> None:
    settings = yaml.safe_load(dashboard_settings.read_text())
    port = free_port()
    settings["listen"] = {"host": "127.0.0.1", "port": port}
    settings["dashboard"]["listen"] = {"host": "127.0.0.2", "port": port}
    path = dashboard_settings.parent / f"{tmp_path.name}.yml"
    path.write_text(yaml.safe_dump(settings))
    refused = run_command("api", "--config", str(path), check=False)
    assert refused.returncode == 1
    assert f"dashboard.listen.port: {port} is the port of the API" in refused.stderr


async def test_somebody_ends_another_session_of_theirs_and_nobody_elses(
    dashboard: Dashboard,
) -> None:
    user = "two-browsers@example.test"
    async with (
        dashboard.signed_in(user) as one,
        dashboard.signed_in(user) as other,
        dashboard.signed_in("somebody-else@example.test") as stranger,
    ):
        page = (await one.get("/session")).text
        assert "This browser" in page
        (form,) = re.findall(r'action="(/session/end/[^"]+)"', page)
        assert (await stranger.post(form)).status_code == 404
        assert (await other.get("/organizations")).status_code == 200
        assert (await one.post(form)).status_code == 303
        assert (await other.get("/organizations")).headers["location"].startswith("/session")
        assert (await one.post(form)).status_code == 404
        assert (await one.get("/organizations")).status_code == 200


async def test_an_end_of_a_user_uses_up_their_links(dashboard: Dashboard) -> None:
    user = "linked@example.test"
    link = dashboard.link(user)
    assert "1 unused links of linked@example.test ended" in dashboard.command("end", "--user", user)
    async with dashboard.person() as person:
        assert (await person.get(link)).status_code == 403
