"""Sign in by a certified OpenID provider, as a browser does."""

from datetime import UTC, datetime
from urllib.parse import parse_qs, quote, urlsplit

import httpx
import pytest
from sqlalchemy import select, update

from cloister_api.ledger.tables import AUDIT, SESSIONS
from dev.plain_http import NO_TRUST
from tests.support.programs.dashboard import COOKIE, Person
from tests.support.programs.facade import ADMIN, FacadeInstallation, run_command
from tests.support.programs.openid_dashboard import NAME, RealSignIns
from tests.support.waiting import until

BOB = {"user": "bob@example.test", "role": "Member"}

pytestmark = pytest.mark.programs("openid-provider")


async def back_from(sign_ins: RealSignIns, person: Person, name: str, start: str) -> str:
    """Follow a link of the dashboard to the provider, and return the path of the way back."""
    begun = await person.get(start)
    assert begun.status_code == 303, begun.text
    to = begun.headers["location"]
    assert to.startswith(sign_ins.provider.issuer)
    returned = await sign_ins.provider.sign_in(to, name)
    return returned.removeprefix(sign_ins.dashboard.address)


async def until_shown(person: Person, place: str, text: str) -> None:
    """Wait until a page shows a text."""

    async def shown() -> bool:
        return text in (await person.get(place)).text

    await until(shown, what=text)


async def sign_in(sign_ins: RealSignIns, person: Person) -> None:
    """Sign somebody in."""
    done = await person.get(await back_from(sign_ins, person, "ada", "/session/start"))
    assert done.headers["location"] == "/"
    assert person.cookie


async def test_somebody_signs_in_and_lands_at_the_page(
    real_sign_ins: RealSignIns, world: FacadeInstallation
) -> None:
    async with real_sign_ins.dashboard.person() as person:
        wanted = f"/o/{world.organization}/containers"
        away = await person.get(wanted)
        page = await person.get(away.headers["location"])
        link = f"/session/start?next={wanted}"
        assert f'href="{link}"' in page.text
        assert f"Continue with {NAME}" in page.text
        back = await back_from(real_sign_ins, person, "ada", link)
        attempt = person.attempt
        done = await person.get(back, **{"Sec-Fetch-Site": "cross-site"})
        assert (done.status_code, done.headers["location"]) == (303, wanted)
        assert not person.attempt, "an attempt counts once"
        for word in ("HttpOnly", "Path=/", "SameSite=lax", "Secure", "Max-Age=86400"):
            assert word in done.headers["set-cookie"]
        assert ADMIN in (await person.get("/session")).text
    log = real_sign_ins.dashboard.facade.log.read_text()
    given = parse_qs(urlsplit(back).query)
    for secret in (given["code"][0], given["state"][0], person.cookie, attempt, "id_token"):
        assert secret not in log
    rows = [(row.action, row.actor) for row in await world.audit()]
    assert ("session.create", ADMIN) in rows
    assert "\toidc\t" in real_sign_ins.dashboard.command("list")


async def test_the_attempt_is_sealed_and_short_lived(real_sign_ins: RealSignIns) -> None:
    async with real_sign_ins.dashboard.person() as person:
        begun = await person.get("/session/start")
    kept = begun.headers["set-cookie"]
    assert kept.startswith(f"{COOKIE}-signin=")
    for word in ("HttpOnly", "Path=/", "SameSite=lax", "Secure", "Max-Age=600"):
        assert word in kept
    asked = {name: values[0] for name, values in parse_qs(
        urlsplit(begun.headers["location"]).query).items()}  # fmt: skip
    assert asked["scope"] == "openid email"
    assert asked["code_challenge_method"] == "S256"
    assert "max_age" not in asked
    for secret in (asked["state"], asked["nonce"]):
        assert len(secret) == 43
        assert secret not in kept


async def test_an_address_that_was_not_verified_signs_nobody_in(
    real_sign_ins: RealSignIns, world: FacadeInstallation
) -> None:
    """The provider has eve's address as ada's, and does not say that it was verified."""
    async with real_sign_ins.dashboard.person() as person:
        back = await back_from(real_sign_ins, person, "eve", "/session/start")
        refused = await person.get(back)
        assert refused.headers["location"] == "/session?problem=email-not-verified"
        assert not person.cookie
        page = await person.get(refused.headers["location"])
        assert f"{NAME} does not say that your e-mail address is verified" in page.text
    async with world.ledger() as engine, engine.connect() as connection:
        query = select(AUDIT).where(AUDIT.c.action == "session.refused").order_by(AUDIT.c.id.desc())
        row = (await connection.execute(query)).mappings().first()
    assert row is not None
    assert row["target"] == "email-not-verified id-eve"
    assert (row["organization"], row["result"]) == ("", "403 FORBIDDEN")
    assert row["request_id"] == refused.headers["x-request-id"]


async def test_a_way_back_counts_in_its_own_browser_alone(real_sign_ins: RealSignIns) -> None:
    async with (
        real_sign_ins.dashboard.person() as attacker,
        real_sign_ins.dashboard.person() as victim,
    ):
        back = await back_from(real_sign_ins, attacker, "ada", "/session/start")
        for begun in (False, True):
            if begun:
                await victim.get("/session/start")
            refused = await victim.get(back, **{"Sec-Fetch-Site": "cross-site"})
            assert refused.headers["location"] == "/session?problem=not-begun"
            assert not victim.cookie
        assert "not begun in this browser" in (await victim.get("/session?problem=not-begun")).text
        assert (await attacker.get(back)).headers["location"] == "/"
        again = await attacker.get(back)
        assert again.headers["location"] == "/session?problem=not-begun"


@pytest.mark.parametrize(
    "place", ["//attacker.test/", "https://attacker.test/", "/\\attacker.test", "/session/start"]
)
async def test_a_sign_in_leads_to_no_other_site(real_sign_ins: RealSignIns, place: str) -> None:
    async with real_sign_ins.dashboard.person() as person:
        start = str(httpx.URL("/session/start", params={"next": place}))
        done = await person.get(await back_from(real_sign_ins, person, "ada", start))
        assert done.headers["location"] == "/"


async def test_what_needs_a_recent_sign_in_leads_back_to_the_provider(
    real_sign_ins: RealSignIns, world: FacadeInstallation
) -> None:
    async with real_sign_ins.dashboard.person() as person:
        await sign_in(real_sign_ins, person)
        first, here = person.cookie, f"/o/{world.organization}/admin-keys"
        link = f"/session/start?next={here}&amp;recent="
        assert link not in (await person.get(here)).text
        async with world.ledger() as engine, engine.begin() as connection:
            long_ago = datetime(2026, 1, 1, tzinfo=UTC)
            await connection.execute(update(SESSIONS).values(authenticated_at=long_ago))
        await world.change_organization(members=[{"user": ADMIN, "role": "Admin"}, BOB])
        for path in ("members", "members/person?user=bob%40example.test"):
            place = f"/o/{world.organization}/{path}"
            again = f'href="/session/start?next={quote(place)}&amp;recent="'
            await until_shown(person, place, again)
        refused = await person.fill(here, name="ci", days="")
        assert refused.status_code == 403
        assert link in refused.text
        begun = await person.get(link.replace("&amp;", "&"))
        asked = parse_qs(urlsplit(begun.headers["location"]).query)
        assert asked["max_age"] == ["900"]
        returned = await real_sign_ins.provider.sign_in(begun.headers["location"], "ada")
        done = await person.get(returned.removeprefix(real_sign_ins.dashboard.address))
        assert done.headers["location"] == here
        assert person.cookie != first
        assert (await person.fill(here, name="ci", days="")).status_code == 303
        ended, person.cookie = person.cookie, first
        assert (await person.get("/organizations")).headers["location"] == "/session", ended


async def test_a_sign_out_leads_to_the_providers(real_sign_ins: RealSignIns) -> None:
    async with real_sign_ins.dashboard.person() as person:
        await sign_in(real_sign_ins, person)
        out = await person.post("/session/end")
        assert out.headers["location"] == "/session?ended"
        page = await person.get("/session?ended")
        link = f"{real_sign_ins.provider.issuer}end_session?client_id=web"
        assert f'href="{link}"' in page.text
        async with httpx.AsyncClient(verify=NO_TRUST, follow_redirects=True) as browser:
            assert "signed out" in (await browser.get(link)).text


async def test_a_provider_that_is_gone_is_named_and_a_link_still_works(
    real_sign_ins: RealSignIns,
) -> None:
    async with real_sign_ins.dashboard.person() as person:
        back = await back_from(real_sign_ins, person, "ada", "/session/start")
        real_sign_ins.provider.stop()
        try:
            gone = await person.get(back)
        finally:
            real_sign_ins.provider.start()
        assert gone.headers["location"] == "/session?problem=unreachable"
        page = await person.get(gone.headers["location"])
        assert f"{NAME} does not respond" in page.text
        assert "cloister session link" in page.text
        assert (await person.post(real_sign_ins.dashboard.link(ADMIN))).status_code == 303


async def test_a_made_up_problem_shows_nothing(real_sign_ins: RealSignIns) -> None:
    async with real_sign_ins.dashboard.person() as person:
        page = await person.get("/session?problem=Call+0900+at+once")
        assert "0900" not in page.text
        assert 'role="alert"' not in page.text


def test_a_secret_that_is_missing_is_named_at_the_start(real_sign_ins: RealSignIns) -> None:
    settings = real_sign_ins.dashboard.settings
    broken = settings.with_name("no-secret.yml")
    broken.write_text(settings.read_text().replace("/secret\n", "/nowhere\n"))
    refused = run_command("api", "--config", str(broken), check=False)
    assert refused.returncode == 1
    assert "dashboard.oidc.clientSecretFile: " in refused.stderr
    assert "provide the file, or correct the setting" in refused.stderr
