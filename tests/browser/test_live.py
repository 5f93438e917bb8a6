"""Pages that keep themselves current, with the page's own policy in force."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Page, Request, expect

from tests.support.programs.browser import SIZE, Visitor, launched
from tests.support.programs.dashboard import Dashboard, start_dashboard
from tests.support.programs.facade import ADMIN, Facade, FacadeInstallation, start_facade
from tests.support.waiting import until

CHANGE = 12_000
"""Milliseconds within which a change is on the screen of a busy machine; without a word of the
stream nothing would be before fifteen seconds."""


@pytest.fixture
async def visitor(chromium: None, dashboard: Dashboard) -> AsyncIterator[Visitor]:
    """Provide a visitor whose browser enforces the policy of the pages."""
    async with launched() as browser:
        context = await browser.new_context(viewport=SIZE)
        page = await context.new_page()
        found = Visitor(dashboard, context, page)
        page.on("console", found.note)
        yield found
        assert not found.complaints


def address_of(world: FacadeInstallation, *more: str) -> str:
    return "/".join(["/o", world.organization, "containers", *more])


def watched(page: Page) -> list[str]:
    """Return the addresses of the requests of a page, which grow."""
    addresses: list[str] = []

    def note(request: Request) -> None:
        addresses.append(request.url)

    page.on("request", note)
    return addresses


async def is_live(page: Page) -> None:
    await expect(page.locator("#live")).to_have_text("Live")


async def test_the_list_follows_what_others_do(
    visitor: Visitor, facade: Facade, world: FacadeInstallation
) -> None:
    page = visitor.page
    await visitor.sign_in(ADMIN)
    async with facade.client(world.key) as client:
        first = (await client.post("/api/containers", json=world.body("first"))).json()
        await visitor.open(address_of(world))
        await is_live(page)
        link = page.get_by_role("link", name="first", exact=True)
        await link.focus()
        loads: list[str] = []
        page.on("load", lambda _: loads.append("load"))
        made = await client.post("/api/containers", json=world.body("second"))
        assert made.status_code == 201
        await expect(page.get_by_role("link", name="second", exact=True)).to_be_visible(
            timeout=CHANGE
        )
        await world.report("first", phase="ready", currentTag="v1.0.0")
        row = page.get_by_role("row").filter(has=link)
        await expect(row).to_contain_text("Running", timeout=CHANGE)
        await expect(link).to_be_focused()
        await client.delete(f"/api/containers/{first['id']}")
        await expect(link).to_have_count(0, timeout=CHANGE)
        assert not loads, "the page was not loaded again"


async def test_what_somebody_types_and_opens_stays(
    visitor: Visitor, facade: Facade, world: FacadeInstallation
) -> None:
    page = visitor.page
    await visitor.sign_in(ADMIN)
    async with facade.client(world.key) as client:
        made = (await client.post("/api/containers", json=world.body("web"))).json()
    await world.report("web", phase="ready", currentTag="v1.0.0")
    await visitor.open(address_of(world, made["id"]))
    await is_live(page)
    await page.get_by_text("Do this with the API").click()
    await page.get_by_role("button", name="Deploy…").click()
    tag = page.get_by_label("Release tag")
    await tag.fill("v1.")
    await world.report("web", phase="failed", currentTag="v1.0.0")
    await expect(page.locator("#state")).to_contain_text("Failed", timeout=CHANGE)
    await expect(tag).to_have_value("v1.")
    await expect(tag).to_be_focused()
    await expect(page.get_by_text("describe containers.cloister.dev")).to_be_visible()
    # The hidden version has followed, so that the form is not refused as one of an old page.
    await tag.fill("v1.0.0")
    await page.get_by_role("button", name="Deploy", exact=True).click()
    await expect(page.get_by_role("alert")).to_have_count(0)
    await expect(page.get_by_role("heading", level=1)).to_have_text("web")


async def test_whoever_is_removed_sees_nothing_more(
    visitor: Visitor, world: FacadeInstallation
) -> None:
    user = "leaver@example.test"
    people = [{"user": ADMIN, "role": "Admin"}, {"user": user, "role": "Admin"}]
    await world.change_organization(members=people)
    page = visitor.page
    await visitor.sign_in(user)

    async def known() -> bool:
        await visitor.open(address_of(world))
        return await page.get_by_role("link", name="New container").is_visible()

    await until(known, what="the membership")
    await is_live(page)
    demoted = [people[0], {"user": user, "role": "Member"}]
    await world.change_organization(members=demoted)
    await expect(page.get_by_role("link", name="New container")).to_have_count(0, timeout=CHANGE)
    await is_live(page)
    await world.change_organization(members=people[:1])
    await expect(page.get_by_role("heading", level=1)).to_have_text("Not Found", timeout=CHANGE)


async def test_an_ended_session_leads_to_the_sign_in_once(
    visitor: Visitor, world: FacadeInstallation
) -> None:
    page = visitor.page
    await visitor.sign_in(ADMIN)
    await visitor.open(address_of(world))
    await is_live(page)
    other = await visitor.context.new_page()
    await other.goto(visitor.dashboard.address + "/session")
    requests = watched(page)
    await other.get_by_role("main").get_by_role("button", name="Sign out", exact=True).click()
    # Something changes, so that the page looks; without it the stream looks every 15 s.
    await world.change_organization(members=[{"user": ADMIN, "role": "Admin"}])
    await page.bring_to_front()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in", timeout=20_000)
    assert len(requests) < 20, requests


async def test_a_facade_that_is_gone_is_said_and_found_again(
    visitor: Visitor, dashboard_settings: Path, world: FacadeInstallation
) -> None:
    page = visitor.page
    visitor.may_be_cut_off = True
    with start_dashboard(dashboard_settings) as visitor.dashboard:
        await visitor.sign_in(ADMIN)
        await visitor.open(address_of(world))
        await is_live(page)
        visitor.dashboard.facade.kill()
        await expect(page.locator("#live")).to_contain_text("Not updating since")
        await expect(page.locator("#live")).to_contain_text("Reconnecting…")
    requests = watched(page)
    with start_facade(visitor.dashboard.settings):
        await expect(page.locator("#live")).to_have_text("Live", timeout=90_000)
    assert len(requests) < 60, "it tries less and less often"


async def test_hidden_tabs_leave_the_connections_to_the_visible_one(
    visitor: Visitor, world: FacadeInstallation
) -> None:
    """Browsers open six connections to one server: seven streams would block every request."""
    await visitor.sign_in(ADMIN)
    pages = [await visitor.context.new_page() for _ in range(7)]
    for each in pages:
        await each.goto(visitor.dashboard.address + address_of(world))
        await is_live(each)
        await hide(each)
    await visitor.open(address_of(world))
    await is_live(visitor.page)
    assert len(pages) > 6


async def hide(page: Page) -> None:
    """Let a page believe that its tab is hidden, as browsers say it."""
    await page.evaluate(
        "() => { Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
        " document.dispatchEvent(new Event('visibilitychange')); }"
    )


async def test_scripts_that_somebody_injects_do_not_run(
    visitor: Visitor, world: FacadeInstallation
) -> None:
    """Whoever could write into a page still could not run anything in it."""
    await visitor.sign_in(ADMIN)
    await visitor.open(address_of(world))
    await is_live(visitor.page)
    refused = await visitor.page.evaluate(
        "() => { try { document.body.innerHTML = '<img src=x onerror=alert(1)>'; return ''; }"
        " catch (error) { return error.name; } }"
    )
    assert refused == "TypeError"
    visitor.complaints[:] = [each for each in visitor.complaints if "TrustedHTML" not in each]
