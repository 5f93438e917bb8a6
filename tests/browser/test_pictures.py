"""Pictures of pages; `make screenshots` keeps them in docs/dashboard."""

import os
from pathlib import Path

import pytest

from tests.support.programs.browser import Visitor
from tests.support.programs.dashboard_samples import make_samples
from tests.support.programs.facade import ADMIN, Facade, FacadeInstallation


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return where the pictures go."""
    kept = os.environ.get("CLOISTER_SCREENSHOTS")
    found = Path(kept) if kept else tmp_path
    found.mkdir(parents=True, exist_ok=True)
    return found


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 640, 320])
async def test_two_pictures_of_a_page_are_equal(
    visitor: Visitor, facade: Facade, world: FacadeInstallation, folder: Path, theme: str,
    width: int,
) -> None:  # fmt: skip
    """What moves by itself would differ."""
    async with facade.client(world.key) as client:
        made = await make_samples(world, client)
    page = visitor.page
    await page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    await page.set_viewport_size({"width": width, "height": 900})
    await visitor.sign_in(ADMIN)
    where = f"/o/{world.organization}/containers"
    for name, path in (
        ("containers", where),
        ("container-failed", f"{where}/{made['shop']}"),
        ("container", f"{where}/{made['web']}"),
        ("organizations", "/organizations?all"),
        ("sign-in", "/session"),
    ):
        await visitor.open(path)
        place = folder / f"{name}-{theme}-{width}.png"
        first = await page.screenshot(full_page=True)
        assert await page.screenshot(full_page=True) == first
        place.write_bytes(first)
