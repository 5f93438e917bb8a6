"""The REST API with the cookie of a session: what it may, from where, and what it cannot reach."""

import contextlib
import re
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from sqlalchemy import update

from cloister_api.auth.roles import RIGHTS, RULES
from cloister_api.ledger.tables import SESSIONS
from cloister_clients.clock import utc_now
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Organization
from cloister_crds.kinds.organization import Role
from tests.support.programs.dashboard import COOKIE, Dashboard, Person
from tests.support.programs.facade import ADMIN, Facade, FacadeInstallation
from tests.support.waiting import until

SCRIPT = {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}
"""Headers of a request that a script of the dashboard's own pages makes."""
ADA = {"user": ADMIN, "role": "Admin"}
BOB = "bob@example.test"
SUBJECT = "https://id.example.test/u#7"
"""A name with slashes, as of an OpenID provider."""


@dataclass
class Script:
    """A script on a page of the dashboard, for one organization."""

    person: Person
    """Who is signed in."""
    slug: str
    """Organization that its requests mean; empty = they say nothing."""

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] = SCRIPT,
    ) -> httpx.Response:
        """Send a request of the API with the cookie of the person."""
        meant = {"x-organization": self.slug} if self.slug else {}
        given = {"cookie": f"{COOKIE}={self.person.cookie}", **meant, **headers}
        return await self.person.client.request(method, path, json=body, headers=given)


@contextlib.asynccontextmanager
async def script_of(
    dashboard: Dashboard, world: FacadeInstallation, user: str = ADMIN
) -> AsyncIterator[Script]:
    """Provide a script of somebody who has signed in, once the organization names them."""
    async with dashboard.signed_in(user) as person:
        script = Script(person, world.organization)

        async def named() -> bool:
            return (await script.call("GET", "/api/organization")).status_code == 200

        await until(named, what="the organization of who is signed in")
        yield script


async def roles(world: FacadeInstallation) -> dict[str, str]:
    """Return the members with their roles, as the server has them."""
    found = await world.kube.get(of(Organization), world.organization)
    return {each["user"]: each["role"] for each in found["spec"]["members"]}


@pytest.mark.spec("2.7")
async def test_a_session_does_what_an_admin_key_does(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    async with script_of(dashboard, world) as script:
        made = await script.call("POST", "/api/containers", world.body("web"))
        assert made.status_code == 201, made.text
        path = made.headers["location"]
        listed = await script.call("GET", "/api/containers")
        assert [each["name"] for each in listed.json()] == ["web"]
        etag = (await script.call("GET", path)).headers["etag"]
        stale = await script.call("DELETE", path, headers={**SCRIPT, "if-match": '"0"'})
        assert stale.status_code == 412
        gone = await script.call("DELETE", path, headers={**SCRIPT, "if-match": etag})
        assert gone.status_code == 204
        for response in (made, listed, gone):
            assert response.headers["x-content-type-options"] == "nosniff"
            assert response.headers["cache-control"] == "no-store"
            assert "access-control-allow-origin" not in response.headers
    rows = {row.action: row for row in await world.audit()}
    row = rows["container.create"]
    assert (row.actor, row.key_id, row.result) == (ADMIN, None, "201")
    assert row.session_id == rows["session.create"].session_id


async def test_a_session_says_who_is_signed_in_and_means_one_organization(
    dashboard: Dashboard,
    facade: Facade,
    world: FacadeInstallation,
    other_world: FacadeInstallation,
) -> None:
    user = f"{world.organization}@example.test"
    people = [ADA, {"user": user, "role": "Member"}]
    for each in (world, other_world):
        await each.change_organization(members=people)
    slugs = sorted([world.organization, other_world.organization])
    async with dashboard.signed_in(user) as signed_in:
        script = Script(signed_in, "")

        async def both() -> dict[str, Any] | None:
            answer = await script.call("GET", "/api/session")
            found: dict[str, Any] = answer.json()
            return found if len(found.get("organizations", ())) == len(slugs) else None

        found = await until(both, what="both organizations")
        assert found is not None
        assert [each["slug"] for each in found["organizations"]] == slugs
        assert (found["user"], found["via"], found["key_id"]) == (user, "session", None)
        assert found["expires_at"] > utc_now().isoformat()
        unclear = await script.call("GET", "/api/containers")
        assert unclear.status_code == 400
        assert unclear.json()["details"][0]["field"] == "X-Organization"
        assert all(slug in unclear.text for slug in slugs)
        meant = {**SCRIPT, "x-organization": other_world.organization}
        answer = await script.call("GET", "/api/organization", headers=meant)
        assert answer.json()["slug"] == other_world.organization
    async with facade.client(world.key) as client:
        client.headers["x-organization"] = other_world.organization
        refused = await client.get("/api/organization")
        assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN")
        client.headers["x-organization"] = world.organization
        assert (await client.get("/api/organization")).status_code == 200


async def test_a_member_reads_and_changes_nothing(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    await world.change_organization(members=[ADA, {"user": BOB, "role": "Member"}])
    async with script_of(dashboard, world, BOB) as script:
        for path in ("/api/containers", "/api/secrets", "/api/keys", "/api/billing/usage"):
            assert (await script.call("GET", path)).status_code == 200, path
        for method, path, body in (
            ("POST", "/api/containers", world.body("web")),
            ("PUT", f"/api/members/{BOB}", {"role": "Admin"}),
            ("POST", "/api/containers/validate", {"repo": world.repo, "tag": "v1.0.0"}),
            ("GET", "/api/audit", None),
            ("GET", "/api/admin-keys", None),
            ("GET", "/api/billing/transactions", None),
        ):
            refused = await script.call(method, path, body)
            assert refused.status_code == 403, path
            assert "your role in this organization is Member" in refused.json()["error"]
    assert await roles(world) == {ADMIN: "Admin", BOB: "Member"}


@pytest.mark.spec("30.1", "30.2")
@pytest.mark.parametrize("role", Role)
async def test_each_role_does_what_its_rules_say(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation, role: Role
) -> None:
    people = [ADA] if role is Role.ADMIN else [ADA, {"user": BOB, "role": role.value}]
    await world.change_organization(members=people)
    async with script_of(dashboard, world, ADMIN if role is Role.ADMIN else BOB) as script:
        for right, operations in RULES.items():
            for operation in operations:
                method, path = operation.split(" ")
                # Nothing has these names, so that what a role may do changes nothing either.
                path = re.sub(r"{[^}]*}", str(uuid.uuid4()), path)
                body: dict[str, str] | None = None if method == "GET" else {}
                answer = await script.call(method, path, body)
                refused = "your role in this organization" in answer.text
                assert refused is (right not in RIGHTS[role]), (operation, answer.text)
                assert answer.status_code == 403 or not refused, operation


OTHERS: dict[str, dict[str, str]] = {
    "another site": {**SCRIPT, "sec-fetch-site": "cross-site"},
    "another port, or a container beside it": {**SCRIPT, "sec-fetch-site": "same-site"},
    "no page at all": {},
    "an opaque origin": {"origin": "null"},
    "another origin": {"origin": "http://127.0.0.1:1"},
    "a link of another site": {
        "sec-fetch-site": "cross-site",
        "sec-fetch-mode": "navigate",
        "sec-fetch-dest": "document",
    },
}


@pytest.mark.parametrize("headers", OTHERS.values(), ids=OTHERS)
async def test_requests_of_other_pages_change_nothing(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation, headers: dict[str, str]
) -> None:
    async with script_of(dashboard, world) as script:
        body = {"name": "STOLEN", "value": "made-up"}
        refused = await script.call("POST", "/api/secrets", body, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN")
        if headers.get("sec-fetch-site", "same-origin") != "same-origin":
            read = await script.call("GET", "/api/secrets", headers=headers)
            assert read.status_code == 403
        assert (await script.call("GET", "/api/secrets")).json() == []


async def test_doors_do_not_open_for_the_callers_of_others(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    async with script_of(dashboard, world) as script, facade.client() as api:
        cookie = {"cookie": f"{COOKIE}={script.person.cookie}"}
        # At the API's own listener a cookie counts for nothing.
        assert (await api.get("/api/containers", headers={**SCRIPT, **cookie})).status_code == 401
        key = {**SCRIPT, "authorization": f"Bearer {world.key}"}
        for given in (key, {**key, **cookie}):
            refused = await script.person.client.get("/api/containers", headers=given)
            assert refused.status_code == 401
            assert "address of the API" in refused.json()["error"]
        nobody = await script.person.client.get("/api/containers", headers=SCRIPT)
        assert (nobody.status_code, nobody.json()["code"]) == (401, "UNAUTHORIZED")
        elsewhere = await script.call(
            "GET", "/api/containers", headers={**SCRIPT, "host": "evil.test"}
        )
        assert elsewhere.status_code == 421
        unknown = {**SCRIPT, "x-organization": "no-such-organization"}
        assert (await script.call("GET", "/api/secrets", headers=unknown)).status_code == 404
        for path in ("/api/shim/collateral", "/api/webhooks/releases", "/api/config/models"):
            assert (await script.call("GET", path)).status_code == 404, path
        meant = {"x-organization": world.organization}
        form = {**SCRIPT, **cookie, **meant, "content-type": "text/plain"}
        sent = await script.person.client.post("/api/secrets", content=b"{}", headers=form)
        assert sent.status_code == 415


async def test_who_is_demoted_removed_or_signed_out_is_refused_at_once(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    await world.change_organization(members=[ADA, {"user": BOB, "role": "Admin"}])
    async with script_of(dashboard, world, BOB) as bob:

        async def reads(path: str, status: int) -> None:
            async def answered() -> bool:
                answer = await bob.call("GET", path)
                return answer.status_code == status

            await until(answered, every=0.02, what=f"{status} at {path}")

        await reads("/api/audit", 200)
        await world.change_organization(members=[ADA, {"user": BOB, "role": "Member"}])
        await reads("/api/audit", 403)
        await reads("/api/containers", 200)
        await world.change_organization(members=[ADA])
        await reads("/api/containers", 404)
        await world.change_organization(members=[ADA, {"user": BOB, "role": "Admin"}])
        await reads("/api/containers", 200)
        dashboard.command("end", "--user", BOB)
        assert (await bob.call("GET", "/api/containers")).status_code == 401


@pytest.mark.spec("30.3")
async def test_members_are_put_and_removed_by_sessions_alone(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    path = f"/api/members/{quote(SUBJECT, safe='')}"
    async with script_of(dashboard, world) as script, facade.client(world.key) as client:
        for role in ("Admin", "Admin", "Member"):
            put = await script.call("PUT", path, {"role": role})
            assert put.status_code == 200, put.text
            assert put.json() == {"user": SUBJECT, "role": role, "admin_keys": 0}
            assert await roles(world) == {ADMIN: "Admin", SUBJECT: role}
        wrong = await script.call("PUT", path, {"role": "Owner"})
        assert (wrong.status_code, wrong.json()["details"][0]["field"]) == (400, "role")
        assert (await script.call("DELETE", path)).status_code == 204
        assert (await script.call("DELETE", path)).status_code == 404
        last = await script.call("DELETE", f"/api/members/{ADMIN}")
        assert (last.status_code, last.json()["code"]) == (409, "CONFLICT")
        for method, body in (("PUT", {"role": "Admin"}), ("DELETE", None)):
            refused = await client.request(method, path, json=body)
            assert refused.status_code == 403
            assert "sign in to the dashboard" in refused.json()["error"]
    assert await roles(world) == {ADMIN: "Admin"}
    rows = [(row.action, row.target, row.result) for row in await world.audit()]
    assert ("member.put", SUBJECT, "200") in rows
    assert ("member.remove", SUBJECT, "204") in rows
    assert ("member.put", SUBJECT, "403 FORBIDDEN") in rows


async def test_admin_keys_are_made_shown_and_revoked_by_sessions_alone(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    async with script_of(dashboard, world) as script, facade.client(world.key) as client:
        made = await script.call("POST", "/api/admin-keys", {"name": "ci", "days": 30})
        assert made.status_code == 201, made.text
        key = made.json()
        shown = await script.call("POST", f"/api/admin-keys/{key['id']}/reveal")
        assert shown.headers["cache-control"] == "no-store"
        value = shown.json()["key"]
        assert value.endswith(key["last_four"])
        listed = await script.call("GET", "/api/admin-keys")
        assert value not in made.text + listed.text
        assert {each["id"]: each["valid"] for each in listed.json()}[key["id"]] is True
        async with facade.client(value) as holder:
            assert (await holder.get("/api/session")).json()["via"] == "key"
            gone = await script.call("DELETE", f"/api/admin-keys/{key['id']}")
            assert gone.status_code == 204

            async def refused() -> bool:
                return (await holder.get("/api/session")).status_code == 403

            await until(refused, what="the end of the key")
        late = await script.call("POST", f"/api/admin-keys/{key['id']}/reveal")
        assert late.status_code == 409
        for method, path, body in (
            ("GET", "/api/admin-keys", None),
            ("POST", "/api/admin-keys", {"name": "more"}),
            ("POST", f"/api/admin-keys/{key['id']}/reveal", None),
            ("DELETE", f"/api/admin-keys/{key['id']}", None),
        ):
            answer = await client.request(method, path, json=body)
            assert answer.status_code == 403, path
            assert "sign in to the dashboard" in answer.json()["error"]
    rows = [(row.action, row.target, row.result) for row in await world.audit()]
    for action, result in (("create", "201"), ("reveal", "200"), ("revoke", "204")):
        assert (f"admin_key.{action}", key["id"], result) in rows


async def test_an_old_sign_in_neither_makes_keys_nor_members(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    async with script_of(dashboard, world) as script:
        made = await script.call("POST", "/api/admin-keys", {"name": "old"})
        past = utc_now() - timedelta(minutes=16)
        async with world.ledger() as engine, engine.begin() as connection:
            await connection.execute(
                update(SESSIONS).where(SESSIONS.c.user == ADMIN).values(authenticated_at=past)
            )
        key = f"/api/admin-keys/{made.json()['id']}"
        for method, path, body in (
            ("POST", "/api/admin-keys", {"name": "more"}),
            ("POST", f"{key}/reveal", None),
            ("PUT", f"/api/members/{BOB}", {"role": "Admin"}),
            ("DELETE", f"/api/members/{BOB}", None),
        ):
            refused = await script.call(method, path, body)
            assert refused.status_code == 403, path
            assert "sign in again" in refused.json()["error"]
        assert (await script.call("GET", "/api/admin-keys")).status_code == 200
        assert (await script.call("DELETE", key)).status_code == 204


async def test_a_session_is_told_the_value_of_a_key_once(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    await world.change_organization(
        billing={"containerSubscription": True, "tokenBilling": True}, members=[ADA]
    )
    async with script_of(dashboard, world) as script, facade.client(world.key) as client:

        async def made() -> str:
            answer = await script.call("POST", "/api/keys", {"name": "app"})
            return str(answer.json()["key"]) if answer.status_code == 200 else ""

        value = await until(made, what="token billing")
        assert value is not None
        (listed,) = (await script.call("GET", "/api/keys")).json()
        assert (listed["key"], listed["is_owner"]) == (value[:8] + "*" * 24, True)
        path = f"/api/keys/by-id/{listed['id']}"
        changed = (await script.call("PATCH", path, {"name": "app-2"})).json()
        assert (changed["key"], changed["name"]) == (listed["key"], "app-2")
        (full,) = (await client.get("/api/keys")).json()
        assert full["key"] == value
