"""Pictures of pages; `make screenshots` keeps them in docs/dashboard."""

import os
from pathlib import Path

import pytest

from tests.support.programs.browser import Visitor
from tests.support.programs.dashboard_samples import LONG_USER, make_people, make_samples
from tests.support.programs.facade import ADMIN, Facade, FacadeInstallation

KEPT = 1200
"""Width of the pictures that are kept; the others are for whoever runs the test."""


def place_of(name: str, width: int, usual: Path) -> Path:
    """Return where a picture goes, whose name says theme and page."""
    kept = os.environ.get("CLOISTER_SCREENSHOTS")
    folder = Path(kept) if kept and width == KEPT else usual
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.png"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 640, 320])
async def test_two_pictures_of_a_page_are_equal(
    visitor: Visitor, facade: Facade, world: FacadeInstallation, tmp_path: Path, theme: str,
    width: int,
) -> None:  # fmt: skip
    """What moves by itself would differ."""
    async with facade.client(world.key) as client:
        made = await make_samples(world, client)
    await make_people(world)
    page = visitor.page
    await page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    await page.set_viewport_size({"width": width, "height": 900})
    await visitor.sign_in(ADMIN)
    await visitor.open(f"/o/{world.organization}/admin-keys")
    await page.get_by_label("Name", exact=True).fill("ci")
    await page.get_by_role("button", name="Create").click()
    where = f"/o/{world.organization}/containers"
    for name, path in (
        ("containers", where),
        ("container-failed", f"{where}/{made['shop']}"),
        ("container", f"{where}/{made['web']}"),
        ("new-container", f"{where}/new"),
        ("admin-keys", f"/o/{world.organization}/admin-keys"),
        ("members", f"/o/{world.organization}/members"),
        ("member", f"/o/{world.organization}/members/person?user={LONG_USER}"),
        ("organizations", "/organizations?all"),
        ("sign-in", "/session"),
    ):
        await visitor.open(path)
        first = await page.screenshot(full_page=True)
        assert await page.screenshot(full_page=True) == first
        place_of(f"{name}-{theme}", width, tmp_path).write_bytes(first)
