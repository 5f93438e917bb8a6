"""What a new administrator does, from the link to the end of their rights."""

import asyncio
import re

from playwright.async_api import Page, expect

from tests.support.programs.browser import Visitor
from tests.support.programs.facade import ADMIN, Facade, FacadeInstallation
from tests.support.waiting import until

COMMIT = "c" * 40


async def asked(facade: Facade, key: str) -> str:
    """Return the HTTP status that curl gets for the containers."""
    command = (
        "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", f"Authorization: Bearer {key}",
        f"{facade.base}/api/containers",
    )  # fmt: skip
    done = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    printed, _ = await done.communicate()
    return printed.decode()


async def test_from_the_link_to_the_end(
    visitor: Visitor, facade: Facade, world: FacadeInstallation
) -> None:
    """No operator runs: statuses are written as it does."""
    page, user = visitor.page, f"{world.organization}-newcomer@example.test"
    people = [{"user": ADMIN, "role": "Admin"}, {"user": user, "role": "Admin"}]
    await world.change_organization(members=people)
    await sign_in(visitor, world, user)
    await create(page, world)
    await update(page, world)
    key = await make_key(page)

    async def is_known() -> bool:
        return await asked(facade, key) == "200"

    await until(is_known, what="the key")
    await visitor.open(f"/o/{world.organization}/containers")
    await world.change_organization(members=people[:1])
    await expect(page.get_by_role("heading", level=1)).to_have_text("Not Found")

    async def is_refused() -> bool:
        return await asked(facade, key) == "403"

    await until(is_refused, what="the end of the key")


async def sign_in(visitor: Visitor, world: FacadeInstallation, user: str) -> None:
    """Use the link; with one organization it leads to its containers."""
    await visitor.open(visitor.dashboard.link(user))
    await visitor.page.get_by_role("button", name="Sign in").click()

    async def known() -> bool:
        await visitor.open("/")
        return f"/o/{world.organization}/containers" in visitor.page.url

    await until(known, what="the membership")


async def create(page: Page, world: FacadeInstallation) -> None:
    """Create a container of a wrong tag, see why, and mend it."""
    await page.get_by_role("link", name="New container").click()
    await page.get_by_label("Repository").fill(world.repo)
    await page.get_by_label("Release tag").fill("v9.9.9")
    await page.get_by_label("Name", exact=True).fill("web")
    await page.get_by_label("Wait for review").check()
    await page.get_by_role("button", name="Create container").click()
    await expect(page.get_by_role("main")).to_contain_text("v9.9.9")
    await page.get_by_label("Release tag").fill("v1.0.0")
    await page.get_by_role("button", name="Create container").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("web")
    await world.report("web", phase="ready", currentTag="v1.0.0", currentCommit=COMMIT)
    await expect(page.locator("#state")).to_contain_text("Running")


async def update(page: Page, world: FacadeInstallation) -> None:
    """Bring another release, which waits, and let it take over."""
    await page.get_by_role("button", name="Deploy…").click()
    await page.get_by_label("Release tag").fill("v1.1.0")
    await page.get_by_role("button", name="Deploy", exact=True).click()

    async def is_requested() -> bool:
        item = await world.container("web")
        return item is not None and item["spec"]["tag"] == "v1.1.0"

    await until(is_requested, what="the other release")
    await expect(page.get_by_role("alert")).to_have_count(0)
    waiting = {"enclave": "web-b-1", "revision": "b", "tag": "v1.1.0", "status": "ready"}
    await world.report("web", phase="ready", update=waiting)
    promote = page.get_by_role("button", name="Promote v1.1.0")
    await page.set_viewport_size({"width": 1440, "height": 900})
    await expect(promote).to_be_in_viewport()
    await promote.click()

    async def is_promoted() -> bool:
        changed = await world.container("web")
        return changed is not None and changed["spec"].get("promote") == "b"

    await until(is_promoted, what="the promotion")


async def make_key(page: Page) -> str:
    """Make an admin key, and return its value as the page shows it."""
    await page.get_by_role("link", name="Admin keys").click()
    await page.get_by_label("Name", exact=True).fill("ci")
    await page.get_by_role("button", name="Create key").click()
    await page.get_by_role("button", name="Reveal key ci").click()
    await page.wait_for_url(lambda address: address.endswith("/reveal"))
    value = (await page.locator("body").inner_text()).strip()
    assert re.fullmatch(r"admin_\S+", value)
    return value
