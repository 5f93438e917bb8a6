"""Members in the dashboard: added, promoted, demoted and removed, and what ends with them."""

import html
import re
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import yaml
from sqlalchemy import update

from cloister_api.ledger.tables import SESSIONS
from cloister_clients.clock import utc_now
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Organization
from tests.support.programs.dashboard import Dashboard
from tests.support.programs.facade import ADMIN, Facade, FacadeInstallation
from tests.support.waiting import until

BOB = "bob@example.test"
ISSUED = "https://id.example.test#<b>eve</b>&x=1"
"""A name as OpenID providers may give it, and with what pages must not take for HTML."""
ADA_ROLE = {"user": ADMIN, "role": "Admin"}


def page_of(world: FacadeInstallation) -> str:
    """Return the path of the page of all members."""
    return f"/o/{world.organization}/members"


def person_page(world: FacadeInstallation, user: str) -> str:
    """Return the path of the page of one."""
    return f"{page_of(world)}/person?user={quote(user, safe='')}"


async def members(world: FacadeInstallation) -> list[tuple[str, str]]:
    """Return users with their roles, as the server has them."""
    found = await world.kube.get(of(Organization), world.organization)
    return [(each["user"], each["role"]) for each in found["spec"]["members"]]


def fields_of(page: httpx.Response, action: str) -> dict[str, str]:
    """Return the hidden fields of a form on a page."""
    form = re.search(rf'<form[^>]*action="[^"]*/{action}">(.*?)</form>', page.text, re.DOTALL)
    assert form is not None, page.text
    found = re.findall(r'name="(\w+)" value="([^"]*)"', form[1])
    return {name: html.unescape(value) for name, value in found}


async def dies(client: httpx.AsyncClient) -> None:
    """Wait until a facade, which is another process, refuses an admin key."""

    async def refused() -> bool:
        return (await client.get("/api/session")).status_code == 403

    await until(refused, every=0.02, what="the end of the key")


async def people(world: FacadeInstallation, **roles: str) -> None:
    """Set the members: the administrator, and bob with a role."""
    bob = [{"user": BOB, "role": roles["bob"]}] if "bob" in roles else []
    await world.change_organization(members=[ADA_ROLE, *bob])


async def test_somebody_is_added_promoted_demoted_and_removed(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    path, here = page_of(world), person_page(world, ISSUED)
    async with dashboard.signed_in(ADMIN) as ada, dashboard.signed_in(ISSUED) as eve:
        await ada.shows(path, "Add member")
        assert (await eve.get(path)).status_code == 404
        done = await ada.fill(path, name=ISSUED, role="Member")
        assert done.status_code == 303, done.text
        page = await ada.get(done.headers["location"])
        assert "&lt;b&gt;eve&lt;/b&gt;" in page.text
        assert "<b>eve" not in page.text
        assert f'href="{html.escape(here)}"' in page.text
        assert "Ask an administrator to make changes" in (await eve.get(path)).text

        promoted = await ada.fill(f"{path}/role", **fields_of(await ada.get(here), "role"))
        assert promoted.status_code == 303, promoted.text
        assert await members(world) == [(ADMIN, "Admin"), (ISSUED, "Admin")]
        assert "Add member" in (await eve.get(path)).text
        value = await world.new_key(user=ISSUED)
        async with facade.client(value) as client:
            assert (await client.get("/api/session")).json()["user"] == ISSUED
            warned = await ada.shows(here, "These admin keys stop working")
            demoted = await ada.fill(f"{path}/role", **fields_of(warned, "role"))
            told = await ada.get(demoted.headers["location"])
            assert "Revoked" in told.text
            assert "no longer an administrator" in told.text
            await dies(client)
        assert await world.is_revoked(value)
        assert "Ask an administrator to make changes" in (await eve.get(path)).text

        removed = await ada.fill(f"{path}/remove", **fields_of(told, "remove"))
        assert removed.status_code == 303
        assert (await eve.get(path)).status_code == 404
        assert ISSUED not in html.unescape((await ada.get(removed.headers["location"])).text)
        assert "Not a member any more" in (await ada.get(here)).text
    assert await members(world) == [(ADMIN, "Admin")]
    rows = [row for row in await world.audit() if row.action.startswith("member.")]
    assert [(row.action, row.target, row.result) for row in rows] == [
        ("member.add", ISSUED, "200"),
        ("member.role", ISSUED, "200"),
        ("member.role", ISSUED, "200"),
        ("member.remove", ISSUED, "200"),
    ]
    assert {(row.actor, bool(row.session_id), row.key_id) for row in rows} == {(ADMIN, True, None)}


async def test_a_promotion_does_not_bring_keys_back(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    await people(world, bob="Admin")
    value = await world.new_key(user=BOB)
    async with dashboard.signed_in(ADMIN) as ada, facade.client(value) as client:
        await ada.shows(person_page(world, BOB), "These admin keys stop working")
        for action, role in (("role", "Member"), ("role", "Admin"), ("remove", "")):
            done = await ada.fill(f"{page_of(world)}/{action}", name=BOB, role=role)
            assert done.status_code == 303, done.text
            await dies(client)
            assert (await client.get("/api/session")).status_code == 403
        done = await ada.fill(page_of(world), name=BOB, role="Admin")
        assert done.status_code == 303
        assert (await client.get("/api/session")).status_code == 403


@pytest.mark.parametrize(
    ("user", "role", "code", "why"),
    [
        ("", "Member", 400, 'id="name-error"'),
        ("two words", "Member", 400, "without spaces"),
        ("x" * 254, "Admin", 400, 'id="name-error"'),
        ("eve@example.test", "Owner", 400, 'id="role-error"'),
        (BOB, "Admin", 409, "already, as Member"),
    ],
)
async def test_who_cannot_be_added_is_not(
    dashboard: Dashboard, world: FacadeInstallation, user: str, role: str, code: int, why: str
) -> None:
    await people(world, bob="Member")
    async with dashboard.signed_in(ADMIN) as ada:
        await ada.shows(page_of(world), BOB)
        refused = await ada.fill(page_of(world), name=user, role=role)
        assert refused.status_code == code
        assert "Not saved" in refused.text
        assert why in refused.text
        assert f'value="{user}"' in refused.text, "what was typed stays"
    assert await members(world) == [(ADMIN, "Admin"), (BOB, "Member")]


async def test_the_last_administrator_stays(
    dashboard: Dashboard, world: FacadeInstallation
) -> None:
    await people(world, bob="Member")
    async with dashboard.signed_in(ADMIN) as ada:
        page = await ada.shows(person_page(world, ADMIN), "This is the only administrator")
        assert "<form" not in page.text.partition("<main")[2]
        for action in ("role", "remove"):
            refused = await ada.fill(f"{page_of(world)}/{action}", name=ADMIN, role="Member")
            assert refused.status_code == 409
            assert "make somebody else an administrator first" in refused.text
    assert await members(world) == [(ADMIN, "Admin"), (BOB, "Member")]
    rows = [(row.action, row.result) for row in await world.audit()]
    assert ("member.role", "409 CONFLICT") in rows
    assert ("member.remove", "409 CONFLICT") in rows


async def test_what_changed_meanwhile_is_not_overwritten(
    dashboard: Dashboard, world: FacadeInstallation
) -> None:
    await people(world, bob="Member")
    path = page_of(world)
    async with dashboard.signed_in(ADMIN) as ada:
        page = await ada.shows(person_page(world, BOB), "Make administrator")
        sent = fields_of(page, "remove")
        counts = {"status": {"counts": {"containers": 2}}}
        await world.kube.merge_patch(
            of(Organization), world.organization, counts, subresource="status"
        )
        await people(world, bob="Admin")
        await ada.shows(person_page(world, BOB), "Make member")
        late = await ada.fill(f"{path}/remove", **sent)
        assert late.status_code == 412
        assert "changed since this page was made" in late.text
        assert await members(world) == [(ADMIN, "Admin"), (BOB, "Admin")]
        again = fields_of(late, "remove")
        assert again["version"] != sent["version"]
        # The operator writes status all the time; that is no other version of the members.
        counts = {"status": {"counts": {"containers": 3}}}
        await world.kube.merge_patch(
            of(Organization), world.organization, counts, subresource="status"
        )
        assert (await ada.fill(f"{path}/remove", **again)).status_code == 303
        assert (await ada.fill(f"{path}/remove", **again)).status_code == 303, "sent twice"
    assert await members(world) == [(ADMIN, "Admin")]


async def apply_members(world: FacadeInstallation, *people: dict[str, str]) -> None:
    """Apply the Organization as a GitOps tool does."""
    body = {
        "metadata": {"name": world.organization},
        "spec": {"namespace": world.namespace, "members": list(people)},
    }
    async with world.as_manager("kustomize-controller") as kube:
        await kube.apply(of(Organization), body, force=True)


async def test_members_of_a_repository_are_read_only_and_the_change_can_be_copied(
    dashboard: Dashboard, world: FacadeInstallation
) -> None:
    await apply_members(world, ADA_ROLE, {"user": BOB, "role": "Member"})
    path = page_of(world)

    def manifest(page: httpx.Response) -> Any:
        """Return the last manifest that a page has in its text."""
        found = re.findall(r"<code>(apiVersion.*?)</code>", page.text, re.DOTALL)
        return yaml.safe_load(html.unescape(found[-1]))

    async with dashboard.signed_in(ADMIN) as ada:
        page = await ada.shows(path, "Managed by <strong>kustomize-controller")
        assert "<form" not in page.text.partition("<main")[2]
        one = await ada.get(person_page(world, BOB))
        assert "<form" not in one.text.partition("<main")[2]
        assert manifest(one)["spec"]["members"] == [ADA_ROLE], "how it is without the person"
        both = [(BOB, "Member"), (ISSUED, "Admin")]
        for action, fields, title, wanted in (
            ("", {"name": ISSUED, "role": "Admin"}, "Commit this instead", both),
            (
                "/role",
                {"name": BOB, "role": "Admin"},
                "In the repository, as Admin",
                [(BOB, "Admin")],
            ),
            ("/remove", {"name": BOB}, "In the repository, removed", []),
        ):
            refused = await ada.fill(f"{path}{action}", **fields)
            assert refused.status_code == 409
            assert "managed by kustomize-controller" in refused.text
            pattern = rf"{title}</h2>.*?<pre[^>]*><code>(.*?)</code>"
            found = re.search(pattern, refused.text, re.DOTALL)
            assert found is not None, refused.text
            document = yaml.safe_load(html.unescape(found[1]))
            assert document["metadata"] == {"name": world.organization}
            people = [(each["user"], each["role"]) for each in document["spec"]["members"]]
            assert people == [(ADMIN, "Admin"), *wanted]
    assert await members(world) == [(ADMIN, "Admin"), (BOB, "Member")]


async def test_whoever_a_repository_does_not_name_can_be_removed(
    dashboard: Dashboard, world: FacadeInstallation
) -> None:
    await people(world, bob="Member")
    await apply_members(world, ADA_ROLE)
    path = page_of(world)
    async with dashboard.signed_in(ADMIN) as ada:
        page = await ada.shows(person_page(world, BOB), "The repository does not name")
        assert "Make administrator" not in page.text
        for action, name in (("role", BOB), ("remove", ADMIN), ("remove", BOB)):
            answer = await ada.fill(f"{path}/{action}", name=name, role="Admin")
            assert answer.status_code == (303 if (action, name) == ("remove", BOB) else 409)
    assert await members(world) == [(ADMIN, "Admin")]


async def test_a_member_reads_only(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    await people(world, bob="Member")
    path = page_of(world)
    async with dashboard.signed_in(BOB) as bob:
        page = await bob.shows(path, ADMIN)
        assert "<form" not in page.text.partition("<main")[2]
        assert (await bob.get(person_page(world, BOB))).status_code == 403
        for action in ("", "/role", "/remove"):
            refused = await bob.fill(f"{path}{action}", name=BOB, role="Admin")
            assert refused.status_code == 403
            assert "needs the role Admin" in refused.text
        headers = {"Authorization": f"Bearer {world.key}"}
        for action in ("", "/role", "/remove"):
            body = {"name": BOB, "role": "Admin"}
            by_key = await bob.client.post(f"{path}{action}", data=body, headers=headers)
            assert by_key.headers.get("location", "/session") == "/session"
    async with facade.client(world.key) as client:
        for method, status in (("PUT", 403), ("DELETE", 403), ("POST", 405), ("PATCH", 405)):
            role = {"role": "Admin"} if method == "PUT" else None
            refused = await client.request(method, f"/api/members/{BOB}", json=role)
            assert refused.status_code == status
    assert await members(world) == [(ADMIN, "Admin"), (BOB, "Member")]
    rows = [(row.actor, row.action, row.result) for row in await world.audit()]
    for action in ("add", "role", "remove"):
        assert (BOB, f"member.{action}", "403 FORBIDDEN") in rows


async def test_an_old_sign_in_changes_nobody(
    dashboard: Dashboard, world: FacadeInstallation
) -> None:
    await people(world, bob="Member")
    async with dashboard.signed_in(ADMIN) as ada:
        await ada.shows(page_of(world), BOB)
        past = utc_now() - timedelta(minutes=16)
        async with world.ledger() as engine, engine.begin() as connection:
            await connection.execute(
                update(SESSIONS).where(SESSIONS.c.user == ADMIN).values(authenticated_at=past)
            )
        for action in ("", "/role", "/remove"):
            refused = await ada.fill(f"{page_of(world)}{action}", name=BOB, role="Admin")
            assert refused.status_code == 403
            assert "sign in again" in refused.text
    assert await members(world) == [(ADMIN, "Admin"), (BOB, "Member")]


async def test_who_gives_up_the_own_role_is_led_to_what_is_left(
    dashboard: Dashboard, world: FacadeInstallation
) -> None:
    user = f"{world.organization}@example.test"
    both = [ADA_ROLE, {"user": user, "role": "Admin"}]
    await world.change_organization(members=both)
    path, here = page_of(world), person_page(world, user)
    async with dashboard.signed_in(user) as person:
        page = await person.shows(here, "this is you")
        demoted = await person.fill(f"{path}/role", **fields_of(page, "role"))
        assert demoted.headers["location"].startswith(f"{path}?seen=")
        assert (
            "Ask an administrator to make changes"
            in (await person.get(demoted.headers["location"])).text
        )
        await world.change_organization(members=both)
        page = await person.shows(here, "this is you")
        gone = await person.fill(f"{path}/remove", **fields_of(page, "remove"))
        assert gone.headers["location"] == "/organizations?all"
        assert "No organization names" in (await person.get("/organizations?all")).text
    assert await members(world) == [(ADMIN, "Admin")]


async def test_nobody_of_another_organization_is_found_or_changed(
    dashboard: Dashboard, world: FacadeInstallation, other_world: FacadeInstallation
) -> None:
    admin = f"{world.organization}@example.test"
    await world.change_organization(members=[{"user": admin, "role": "Admin"}])
    await people(other_world, bob="Admin")
    await other_world.new_key(user=BOB)
    async with dashboard.signed_in(admin) as person:
        await person.shows(page_of(world), admin)
        assert (await person.get(person_page(world, BOB))).status_code == 404
        assert (await person.get(person_page(other_world, BOB))).status_code == 404
        for action in ("", "/role", "/remove"):
            path = f"{page_of(other_world)}{action}"
            assert (await person.fill(path, name=BOB, role="Member")).status_code == 404
        unknown = await person.fill(f"{page_of(world)}/role", name=BOB, role="Admin")
        assert unknown.status_code == 404
    assert await members(other_world) == [(ADMIN, "Admin"), (BOB, "Admin")]
