"""The people of an organization in a browser: what their administrator does with them."""

from playwright.async_api import Page, expect

from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Organization
from tests.support.programs.browser import Visitor, overflow, violations
from tests.support.programs.facade import ADMIN, Facade, FacadeInstallation
from tests.support.waiting import until

BOB = "bob@example.test"


async def confirmed(page: Page, words: str) -> None:
    """Press a button, and the one that confirms it."""
    await page.get_by_role("button", name=f"{words}…").click()
    await page.get_by_role("button", name=words, exact=True).click()


async def test_a_person_is_added_promoted_demoted_and_removed(
    visitor: Visitor, facade: Facade, world: FacadeInstallation
) -> None:
    page = visitor.page
    main, role = page.get_by_role("main"), page.locator(".head")
    await visitor.sign_in(ADMIN)
    await visitor.open(f"/o/{world.organization}/containers")
    await page.get_by_role("link", name="Members").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Members")
    await page.get_by_label("User").fill("bob at example")
    await page.get_by_role("button", name="Add").click()
    await expect(page.get_by_role("alert")).to_contain_text("Correct name")
    await expect(page.get_by_text("without spaces")).to_be_visible()
    await expect(page.get_by_label("User")).to_have_value("bob at example")
    assert not await violations(visitor)
    await page.get_by_label("User").fill(BOB)
    await page.get_by_role("button", name="Add").click()
    await expect(page.get_by_role("row", name=BOB)).to_contain_text("Member")

    await page.get_by_role("link", name=BOB).click()
    await confirmed(page, "Make administrator")
    row = page.get_by_role("row", name=BOB)
    await expect(row).to_contain_text("Administrator")
    value = await world.new_key(user=BOB)
    async with facade.client(value) as client:
        assert (await client.get("/api/session")).status_code == 200
        await page.get_by_role("link", name=BOB).click()

        async def named() -> bool:
            """Open the page again: nothing tells it of keys, and a replica knows them late."""
            await page.reload()
            return "These admin keys stop working" in await main.inner_text()

        await until(named, what="the admin key on the page")
        assert not await violations(visitor)
        await confirmed(page, "Make member")
        await expect(role).to_contain_text("Member")
        await expect(main).to_contain_text("no longer an administrator")

        async def refused() -> bool:
            return (await client.get("/api/session")).status_code == 403

        await until(refused, what="the end of the key")
    await confirmed(page, "Remove member")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Members")
    await expect(page.get_by_role("row", name=BOB)).to_have_count(0)


async def test_an_open_page_follows_the_organization(
    visitor: Visitor, world: FacadeInstallation
) -> None:
    page = visitor.page
    people = [{"user": ADMIN, "role": "Admin"}, {"user": BOB, "role": "Member"}]
    await world.change_organization(members=people)
    await visitor.sign_in(ADMIN)
    await visitor.open(f"/o/{world.organization}/members")
    await expect(page.locator("#live")).to_have_text("Live")
    await page.get_by_label("User").fill("typed@example.test")
    async with world.as_manager("kustomize-controller") as kube:
        body = {
            "metadata": {"name": world.organization},
            "spec": {"namespace": world.namespace, "members": people[:1]},
        }
        await kube.apply(of(Organization), body, force=True)
    main = page.get_by_role("main")
    await expect(main).to_contain_text("Managed by kustomize-controller")
    await expect(page.get_by_role("row", name=ADMIN)).to_contain_text("kustomize-controller")
    await expect(page.get_by_role("row", name=BOB)).to_contain_text("by hand")
    await page.get_by_role("link", name=BOB).click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(BOB)
    await expect(page.get_by_role("button", name="Make administrator")).to_have_count(0)
    for width in (1200, 320):
        await page.set_viewport_size({"width": width, "height": 900})
        assert await overflow(visitor) == 0
    assert not await violations(visitor)
    await confirmed(page, "Remove member")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Members")
    await expect(page.get_by_role("row", name=BOB)).to_have_count(0)
