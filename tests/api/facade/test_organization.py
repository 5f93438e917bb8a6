"""GET /api/session, /api/organization and /api/members."""

from typing import Any

import httpx

from cloister_clients.clock import utc_text
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Organization
from tests.support.programs.facade import ADMIN, Facade, FacadeInstallation
from tests.support.waiting import until


async def shown(client: httpx.AsyncClient, path: str) -> Any:
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_organization_shows_what_it_may_and_has(
    facade: Facade, world: FacadeInstallation
) -> None:
    suffix = f"{world.organization}.test"
    await world.change_organization(
        limits={"containers": 7, "cpus": [4, 2]},
        entitlements={"gpu": True, "domainSuffixes": [suffix]},
        billing={"containerSubscription": True, "customerID": "cus_1"},
    )
    counts = {"counts": {"containers": 3, "ready": 2, "failed": 1}}
    paid = {"billing": {"tokenBilling": True, "customerID": "cus_1"}}
    await world.kube.merge_patch(
        of(Organization), world.organization, {"status": counts}, subresource="status"
    )
    async with facade.client(world.key) as client:

        async def seen() -> bool:
            return bool((await shown(client, "/api/organization"))["counts"]["containers"] == 3)

        await until(seen, what="the counts")
        record = await shown(client, "/api/organization")
        assert (record["slug"], record["namespace"]) == (world.organization, world.namespace)
        assert record["id"] == (await world.record_of(world.key)).organization_id
        assert record["limits"]["containers"] == 7
        assert record["limits"]["cpus"] == [2, 4]
        assert record["entitlements"] == {
            "gpu": True,
            "host_selection": False,
            "private_registries": False,
            "domain_suffixes": [suffix],
            "public_inference": False,
        }
        assert record["billing"] == {
            "container_subscription": True,
            "token_billing": False,
            "by_processor": False,
        }
        rest = {"secrets": 0, "ssh_keys": 0, "domains": 0}
        assert record["counts"] == {"containers": 3, "ready": 2, "failed": 1} | rest
        assert (record["members"], record["managed_by"]) == (1, [])
        await world.kube.merge_patch(
            of(Organization), world.organization, {"status": paid}, subresource="status"
        )

        async def reported() -> bool:
            billing = (await shown(client, "/api/organization"))["billing"]
            return bool(billing["token_billing"] and billing["by_processor"])

        await until(reported, what="the word of the payment processor")


async def test_a_gitops_tool_that_manages_the_organization_is_named(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with world.as_manager("kustomize-controller") as kube:
        members = [{"user": ADMIN, "role": "Admin"}]
        body = {
            "metadata": {"name": world.organization},
            "spec": {"namespace": world.namespace, "members": members},
        }
        await kube.apply(of(Organization), body, force=True)
    async with facade.client(world.key) as client:

        async def named() -> bool:
            managed_by = (await shown(client, "/api/organization"))["managed_by"]
            tool = {"manager": "kustomize-controller", "fields": ["members", "namespace"]}
            return bool(managed_by == [tool])

        await until(named, what="the tool")


async def test_members_are_listed_with_their_valid_keys(
    facade: Facade, world: FacadeInstallation, other_world: FacadeInstallation
) -> None:
    people = [
        {"user": "zoe@example.test", "role": "Member"},
        {"user": ADMIN, "role": "Admin"},
        {"user": "bob@example.test", "role": "Admin"},
    ]
    await world.change_organization(members=people)
    await world.new_key()
    revoked, expired = await world.new_key(), await world.new_key(days=1)
    await world.revoke(revoked)
    await world.expire(expired)
    wanted = [
        {"user": ADMIN, "role": "Admin", "admin_keys": 2},
        {"user": "bob@example.test", "role": "Admin", "admin_keys": 0},
        {"user": "zoe@example.test", "role": "Member", "admin_keys": 0},
    ]
    ordered = sorted(wanted, key=lambda each: str(each["user"]))
    async with facade.client(world.key) as client, facade.client(other_world.key) as other:

        async def listed() -> bool:
            return bool(await shown(client, "/api/members") == ordered)

        await until(listed, what="the members with their keys")
        first = await client.get("/api/members", params={"limit": 2})
        assert len(first.json()) == 2
        rest = await shown(client, first.links["next"]["url"])
        assert [*first.json(), *rest] == ordered
        foreign = [each["user"] for each in await shown(other, "/api/members")]
        assert foreign == [ADMIN]


async def test_the_caller_is_told_who_they_are(facade: Facade, world: FacadeInstallation) -> None:
    lasting = await world.record_of(world.key)
    ending = await world.new_key(days=1)
    expires = (await world.record_of(ending)).expires_at
    assert expires is not None
    own = [{"slug": world.organization, "role": "Admin"}]
    async with facade.client(world.key) as client, facade.client(ending) as other:
        assert await shown(client, "/api/session") == {
            "user": ADMIN, "via": "key", "key_id": lasting.id, "session_id": None,
            "expires_at": None, "organizations": own,
        }  # fmt: skip
        found = await shown(other, "/api/session")
        assert found["key_id"] != lasting.id
        assert found["expires_at"] == utc_text(expires)
    async with facade.client() as nobody:
        assert (await nobody.get("/api/session")).status_code == 401
