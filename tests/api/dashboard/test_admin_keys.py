"""Admin keys in the dashboard: created, used, shown to their creator alone, and revoked."""

import re
from datetime import timedelta

import pytest
from sqlalchemy import update

from cloister_api.ledger.tables import SESSIONS
from cloister_clients.clock import utc_now
from cloister_crds.lifecycle.admission.quotas import quota_reached
from tests.support.programs.dashboard import Dashboard, Person
from tests.support.programs.facade import ADMIN, Facade, FacadeInstallation
from tests.support.waiting import until

OTHER = "bob@example.test"


async def opened(person: Person, world: FacadeInstallation) -> str:
    """Wait until an administrator may open the page, and return its path."""
    path = f"/o/{world.organization}/admin-keys"

    async def there() -> bool:
        return (await person.get(path)).status_code == 200

    await until(there, what="the page of admin keys")
    return path


async def identifiers(person: Person, path: str, form: str) -> list[str]:
    """Return the keys that the page has a form for."""
    return re.findall(rf'action="{path}/([^/"]+)/{form}"', (await person.get(path)).text)


async def made(person: Person, path: str, name: str) -> str:
    """Create a key, and return its identifier."""
    before = set(await identifiers(person, path, "reveal"))
    done = await person.fill(path, name=name, days="30")
    assert (done.status_code, done.headers["location"]) == (303, path), done.text
    (key,) = set(await identifiers(person, path, "reveal")) - before
    return key


@pytest.mark.spec("2.3")
async def test_a_key_is_made_used_and_revoked(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    async with dashboard.signed_in(ADMIN) as person:
        path = await opened(person, world)
        key = await made(person, path, "for <b>ci</b>")
        page = await person.get(path)
        assert "for &lt;b&gt;ci&lt;/b&gt;" in page.text
        shown = await person.fill(f"{path}/{key}/reveal")
        assert shown.headers["cache-control"] == "no-store"
        assert shown.headers["content-type"].startswith("text/plain")
        value = shown.text.strip()
        assert value.startswith("admin_")
        assert value not in (await person.get(path)).text
        async with facade.client(value) as client:
            assert (await client.get("/api/containers")).status_code == 200
            revoked = await person.fill(f"{path}/{key}/revoke")
            assert revoked.status_code == 303

            async def refused() -> bool:
                return (await client.get("/api/containers")).status_code == 403

            await until(refused, what="the end of the key")
        assert "by ada@example.test" in (await person.get(path)).text
        late = await person.fill(f"{path}/{key}/reveal")
        assert late.status_code == 409
        assert value not in late.text
    rows = [(row.action, row.target, row.result) for row in await world.audit()]
    for action, result in (("create", "201"), ("reveal", "200"), ("revoke", "200")):
        assert (f"admin_key.{action}", key, result) in rows


async def test_valid_keys_are_limited_and_a_revoked_one_makes_a_place(
    dashboard: Dashboard, world: FacadeInstallation
) -> None:
    """The organization of a test has one key from the command line."""
    await world.change_organization(limits={"adminKeys": 2})
    async with dashboard.signed_in(ADMIN) as person:
        path = await opened(person, world)
        await person.shows(f"/o/{world.organization}/settings", "at most 2 valid ones")
        key = await made(person, path, "second")
        refused = await person.fill(path, name="third", days="30")
        assert refused.status_code == 403
        assert quota_reached("admin keys", 2, 2, "revoke one") in refused.text
        assert (await person.fill(f"{path}/{key}/revoke")).status_code == 303
        await made(person, path, "third")


@pytest.mark.spec("2.3")
async def test_a_value_is_shown_to_its_creator_alone(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    people = [{"user": ADMIN, "role": "Admin"}, {"user": OTHER, "role": "Admin"}]
    await world.change_organization(members=people)
    async with dashboard.signed_in(ADMIN) as ada, dashboard.signed_in(OTHER) as bob:
        path = await opened(ada, world)
        key = await made(ada, path, "mine")
        await opened(bob, world)
        assert key not in await identifiers(bob, path, "reveal")
        assert key in await identifiers(bob, path, "revoke")
        refused = await bob.fill(f"{path}/{key}/reveal")
        assert refused.status_code == 403
        assert "only ada@example.test, who created this key" in refused.text
        for unknown in ("reveal", "revoke"):
            assert (await bob.fill(f"{path}/none/{unknown}")).status_code == 404


async def test_an_old_sign_in_reveals_nothing(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    async with dashboard.signed_in(ADMIN) as person:
        path = await opened(person, world)
        key = await made(person, path, "old")
        past = utc_now() - timedelta(minutes=16)
        async with world.ledger() as engine, engine.begin() as connection:
            await connection.execute(
                update(SESSIONS).where(SESSIONS.c.user == ADMIN).values(authenticated_at=past)
            )
        for place in (f"{path}/{key}/reveal", path):
            refused = await person.fill(place, name="more")
            assert refused.status_code == 403
            assert "sign in again" in refused.text
        assert (await person.fill(f"{path}/{key}/revoke")).status_code == 303


@pytest.mark.parametrize(
    ("name", "days", "why"),
    [("", "", "name:"), ("x" * 129, "", "name:"), ("ci", "0", "days:"), ("ci", "many", "days:")],
)
async def test_a_wrong_form_makes_no_key(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation, name: str, days: str, why: str
) -> None:
    async with dashboard.signed_in(ADMIN) as person:
        path = await opened(person, world)
        before = await identifiers(person, path, "revoke")
        refused = await person.fill(path, name=name, days=days)
        assert refused.status_code == 400
        assert f'id="{why.rstrip(":")}-error"' in refused.text
        assert await identifiers(person, path, "revoke") == before


async def test_a_member_and_a_key_may_not(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    member = f"{world.organization}@example.test"
    people = [{"user": ADMIN, "role": "Admin"}, {"user": member, "role": "Member"}]
    await world.change_organization(members=people)
    async with dashboard.signed_in(member) as person:
        path = f"/o/{world.organization}/admin-keys"

        async def told() -> bool:
            return (await person.get(path)).status_code == 403

        await until(told, what="the refusal of a member")
        assert (await person.fill(path, name="ci")).status_code == 403
        headers = {"Authorization": f"Bearer {world.key}"}
        response = await person.client.post(path, data={"name": "ci"}, headers=headers)
        assert response.status_code in {303, 403}
        assert response.headers.get("location", "/session") == "/session"
    names = [row.action for row in await world.audit() if row.result == "201"]
    assert "admin_key.create" not in names
