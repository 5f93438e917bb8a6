"""The dashboard in a browser: what people do with it, and whether everybody can."""

import re
from typing import Literal

import pytest
from playwright.async_api import expect

from tests.support.programs.browser import Visitor, overflow, violations
from tests.support.programs.dashboard_samples import fill_organization, make_samples, pages_of
from tests.support.programs.facade import ADMIN, Facade, FacadeInstallation

EMPTY_PAGES = (
    "containers", "deployments", "secrets", "ssh-keys", "domains", "registries", "api-keys",
    "usage", "models", "billing", "audit",
)  # fmt: skip


async def test_somebody_signs_in_reads_and_signs_out(
    visitor: Visitor, facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        await make_samples(world, client)
    page = visitor.page
    await visitor.sign_in(ADMIN)
    await visitor.open("/organizations?all")
    await page.get_by_role("link", name=world.organization).click()
    rows = page.get_by_role("row")
    await expect(rows).to_have_count(6)
    await expect(rows.nth(1)).to_contain_text("shop")
    await expect(rows.nth(1)).to_contain_text("Failed")
    await rows.nth(1).get_by_role("link", name="shop").first.click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("shop")
    await expect(page.get_by_role("main")).to_contain_text("is not in the registry.")
    await expect(page.locator("#check-Ready")).to_contain_text("isn't serving: problem")
    await page.get_by_role("button", name=ADMIN).click()
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    await page.go_back()
    await page.reload()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")


@pytest.mark.parametrize(
    ("theme", "widths"),
    [
        ("light", (1200, 320)),
        pytest.param("light", (1030, 780, 640), marks=pytest.mark.nightly),
        pytest.param("dark", (1200, 1030, 780, 640, 320), marks=pytest.mark.nightly),
    ],
)
async def test_axe_finds_nothing_and_nothing_is_too_wide(
    visitor: Visitor,
    facade: Facade,
    world: FacadeInstallation,
    theme: Literal["light", "dark"],
    widths: tuple[int, ...],
) -> None:
    made = await fill_organization(facade, world)
    await visitor.page.emulate_media(color_scheme=theme)
    link = visitor.dashboard.link(ADMIN)
    found: dict[str, object] = {}

    async def look(path: str) -> None:
        await visitor.open(path)
        for width in widths:
            await visitor.page.set_viewport_size({"width": width, "height": 900})
            wide = await overflow(visitor)
            if wide:
                found[f"{path} at {width}"] = wide
        problems = await violations(visitor)
        if problems:
            found[path] = problems

    for path in ("/session", link):
        await look(path)
    await visitor.sign_in(ADMIN)
    for path in pages_of(world, made).values():
        await look(path)
    deployments = f"/o/{world.organization}/deployments"
    await visitor.open(deployments)
    await visitor.page.get_by_role("main").get_by_role("link").first.click()
    await look(visitor.page.url.removeprefix(visitor.dashboard.address))
    assert not found


async def test_axe_finds_nothing_on_empty_pages(
    visitor: Visitor, world: FacadeInstallation
) -> None:
    await visitor.sign_in(ADMIN)
    found = {}
    for place in EMPTY_PAGES:
        await visitor.open(f"/o/{world.organization}/{place}")
        problems = await violations(visitor)
        if problems:
            found[place] = problems
    assert not found


async def test_shapes_are_filled_in_forced_colours(
    visitor: Visitor, facade: Facade, world: FacadeInstallation
) -> None:
    """Where no colour is left, the shape alone tells a failure from across the room."""
    async with facade.client(world.key) as client:
        await make_samples(world, client)
    await visitor.page.emulate_media(forced_colors="active")
    await visitor.sign_in(ADMIN)
    await visitor.open(f"/o/{world.organization}/containers")
    shape = visitor.page.locator(".status.bad .i").first
    await expect(shape.locator("use")).to_have_attribute("href", re.compile("#s-failed$"))
    assert await shape.evaluate("(shape) => shape.getBoundingClientRect().width") > 0


async def test_a_container_is_created_mended_stopped_and_deleted(
    visitor: Visitor, facade: Facade, world: FacadeInstallation
) -> None:
    page = visitor.page
    await visitor.sign_in(ADMIN)
    await visitor.open(f"/o/{world.organization}/containers")
    await page.get_by_role("link", name="New container").click()
    await page.get_by_label("Repository").fill(world.repo)
    await page.get_by_label("Release tag").fill("v9")
    await page.get_by_label("Name", exact=True).fill("web")
    await page.get_by_label("Variables").fill("GREETING=hello")
    await page.get_by_role("button", name="Check").click()
    await expect(page.get_by_role("main")).to_contain_text("1 problem in this release")
    await expect(page.get_by_label("Name", exact=True)).to_have_value("web")
    assert not await violations(visitor)
    await page.get_by_label("Release tag").fill("v1.0.0")
    await page.get_by_role("button", name="Create container").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("web")
    status = page.locator("#state")
    await world.report("web", phase="ready", currentTag="v1.0.0")
    await expect(status).to_contain_text("Running")
    await page.get_by_role("button", name="Deploy…").click()
    await page.get_by_label("Release tag").fill("nonsense")
    assert not await violations(visitor)
    await page.get_by_role("button", name="Deploy", exact=True).click()
    await expect(page.get_by_role("alert")).to_contain_text("Not saved")
    assert not await violations(visitor)
    await page.get_by_role("button", name="More actions").click()
    await page.get_by_role("button", name="Stop…").click()
    await page.get_by_role("button", name="Stop container").click()
    await expect(status).to_contain_text("Stopping")
    await world.report("web", phase="stopped")
    await expect(status).to_contain_text("Stopped")
    await page.get_by_role("button", name="More actions").click()
    await page.get_by_role("button", name="Delete…").click()
    await page.get_by_label("to confirm").fill("web")
    await page.get_by_role("button", name="Delete container").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Containers")
    await expect(page.get_by_role("main")).to_contain_text("Run your first container")


async def test_the_keyboard_is_enough(visitor: Visitor, world: FacadeInstallation) -> None:
    await visitor.sign_in(ADMIN)
    await visitor.open(f"/o/{world.organization}/containers")
    page = visitor.page
    await page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to content")
    await expect(skip).to_be_focused()
    await expect(skip).to_be_in_viewport()
    await page.keyboard.press("Enter")
    assert page.url.endswith("#main")
    menu = page.get_by_role("button", name=ADMIN)
    await menu.focus()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await expect(page.locator("#me").get_by_role("link", name="All organizations")).to_be_focused()
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Your sessions")).to_be_focused()
    for _ in range(3):
        await page.keyboard.press("Tab")
    await expect(page.get_by_role("button", name="Sign out")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")


async def test_a_page_on_another_port_cannot_act_for_a_person(
    visitor: Visitor, world: FacadeInstallation
) -> None:
    """Another port is the same site: such a form carries the cookie."""
    await visitor.sign_in(ADMIN)
    target = f"{visitor.dashboard.address}/session/end"
    text = f'<form method="post" action="{target}"><button type="submit">Win</button></form>'
    other = await visitor.context.new_page()
    await other.route(
        "http://127.0.0.1:8099/**", lambda route: route.fulfill(body=text, content_type="text/html")
    )
    await other.goto("http://127.0.0.1:8099/")
    await other.get_by_role("button", name="Win").click()
    await expect(other.get_by_role("heading", level=1)).to_have_text("Forbidden")
    await visitor.open("/session")
    await expect(visitor.page.get_by_role("heading", level=1)).to_have_text("You are signed in")
