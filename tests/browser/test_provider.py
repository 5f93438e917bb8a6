"""Sign in by a real OpenID provider in a browser, under the pages' own policy."""

from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.support.programs.browser import overflow, violations, visiting
from tests.support.programs.facade import ADMIN, FacadeInstallation
from tests.support.programs.openid_dashboard import NAME, RealSignIns
from tests.support.servers.openid import PASSWORD

pytestmark = pytest.mark.programs("openid-provider")


async def sign_in(page: Page, name: str) -> None:
    """Follow the link to the provider, and sign in there."""
    await page.get_by_role("link", name=f"Continue with {NAME}").click()
    await page.get_by_label("Username").fill(name)
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Login").click()


async def test_somebody_signs_in_at_the_provider_and_out_of_both(
    chromium: None, real_sign_ins: RealSignIns, world: FacadeInstallation
) -> None:
    async with visiting(real_sign_ins.dashboard, axe=False) as visitor:
        page, wanted = visitor.page, f"/o/{world.organization}/containers"
        await visitor.open(wanted)
        await sign_in(page, "ada")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Containers")
        assert page.url == visitor.dashboard.address + wanted
        (cookie,) = await visitor.context.cookies(visitor.dashboard.address)
        assert cookie["name"] == "__Host-cloister"
        assert (cookie["secure"], cookie["httpOnly"], cookie["sameSite"]) == (True, True, "Lax")
        await page.get_by_text(ADMIN).click()
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_role("main")).to_contain_text("You're signed out of Cloister")
        await page.get_by_role("link", name=f"Sign out of {NAME} too").click()
        await expect(page.locator("body")).to_have_text("signed out successfully")
        assert not await visitor.context.cookies(visitor.dashboard.address)


async def test_an_address_that_was_not_verified_is_told_so(
    chromium: None, real_sign_ins: RealSignIns, tmp_path: Path
) -> None:
    async with visiting(real_sign_ins.dashboard, axe=True) as visitor:
        page = visitor.page
        await visitor.open("/session")
        assert not await violations(visitor)
        await sign_in(page, "eve")
        await expect(page.get_by_role("alert")).to_contain_text("e-mail address is verified")
        assert "code=" not in page.url
        assert not await visitor.context.cookies(visitor.dashboard.address)
        assert not await violations(visitor)
        for width in (1200, 640, 320):
            await page.set_viewport_size({"width": width, "height": 900})
            assert not await overflow(visitor)
            await page.screenshot(path=tmp_path / f"{width}.png", full_page=True)


async def test_a_way_back_does_nothing_in_another_browser(
    chromium: None, real_sign_ins: RealSignIns
) -> None:
    """Somebody sends the address of their own sign-in to somebody else."""
    async with (
        visiting(real_sign_ins.dashboard, axe=False) as attacker,
        visiting(real_sign_ins.dashboard, axe=False) as victim,
    ):
        await attacker.open("/session")
        await attacker.page.get_by_role("link", name=f"Continue with {NAME}").click()
        await expect(attacker.page.get_by_label("Username")).to_be_visible()
        address = await real_sign_ins.provider.sign_in(attacker.page.url, "ada")
        await victim.page.goto(address)
        await expect(victim.page.get_by_role("alert")).to_contain_text("not begun in this browser")
        assert not await victim.context.cookies(victim.dashboard.address)
        await attacker.page.goto(address)
        await attacker.open("/session")
        await expect(attacker.page.get_by_role("main")).to_contain_text(ADMIN)
