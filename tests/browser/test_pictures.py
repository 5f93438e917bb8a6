"""Pictures of pages; `make screenshots` keeps them in docs/dashboard."""

import os
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.support.programs.browser import Visitor
from tests.support.programs.dashboard_samples import fill_organization, pages_of
from tests.support.programs.facade import ADMIN, Facade, FacadeInstallation

KEPT = 1200
"""Width of the pictures that are kept; the others are for whoever runs the test."""


def place_of(name: str, width: int, usual: Path) -> Path:
    """Return where a picture goes, whose name says theme and page."""
    kept = os.environ.get("CLOISTER_SCREENSHOTS")
    folder = Path(kept) if kept and width == KEPT else usual
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.png"


@pytest.mark.nightly
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 640, 320])
async def test_two_pictures_of_a_page_are_equal(
    visitor: Visitor, facade: Facade, world: FacadeInstallation, tmp_path: Path, theme: str,
    width: int,
) -> None:  # fmt: skip
    """What moves by itself would differ."""
    made = await fill_organization(facade, world)
    page = visitor.page
    await page.emulate_media(
        color_scheme="dark" if theme == "dark" else "light", reduced_motion="reduce"
    )
    await page.set_viewport_size({"width": width, "height": 900})
    await visitor.sign_in(ADMIN)
    await visitor.open(f"/o/{world.organization}/containers")
    # The dashboard has caught up with what was made: nothing changes from here on.
    await expect(page.locator(".head")).to_contain_text("5 of 10 used")
    await expect(page.locator("#main")).to_contain_text("Running 2")
    for name, path in pages_of(world, made).items():
        await visitor.open(path)
        if await page.locator("#live").count():
            await expect(page.locator("#live")).to_have_text("Live")
        first = await page.screenshot(full_page=True)
        assert await page.screenshot(full_page=True) == first
        place_of(f"{name}-{theme}", width, tmp_path).write_bytes(first)
