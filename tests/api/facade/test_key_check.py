"""The key check at a real facade: who may, who may not, and how soon a change is known."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
import yaml
from sqlalchemy import update

from cloister_api.ledger.keys.key_material import REGULAR_PREFIX, generate
from cloister_api.ledger.tables import API_KEYS, KEY_TOTALS, SEQUENCES
from cloister_clients.clock import utc_now
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import HostnameClaim
from tests.support.programs.facade import (
    DOMAIN,
    Facade,
    FacadeInstallation,
    run_command,
    start_facade,
)
from tests.support.waiting import until

CHECK = "/api/shim/validate-key"


async def ask(client: httpx.AsyncClient, key: str, **more: Any) -> int:
    """Check a key without any admin key, and return the status."""
    answer = await client.post(CHECK, json={"api_key": key, **more})
    if answer.status_code != 200:
        assert answer.json().keys() >= {"error", "code", "request_id"}
        assert key not in answer.text
    return answer.status_code


async def becomes(client: httpx.AsyncClient, status: int, key: str, **more: Any) -> None:
    """Wait until a check returns a status."""

    async def answered() -> bool:
        return await ask(client, key, **more) == status

    await until(answered)


@pytest.fixture
async def key(facade: Facade, world: FacadeInstallation) -> str:
    """Return a key of an organization that pays."""
    return await key_of(facade, world)


async def key_of(facade: Facade, world: FacadeInstallation, **body: Any) -> str:
    await world.change_organization(billing={"tokenBilling": True})

    async def created() -> str:
        async with facade.client(world.key) as client:
            answer = await client.post("/api/keys", json={"name": "ci", **body})
        return str(answer.json()["key"]) if answer.status_code == 200 else ""

    return await until(created)


@pytest.fixture
async def client(facade: Facade) -> AsyncIterator[httpx.AsyncClient]:
    """Return a client without any key."""
    async with facade.client() as opened:
        yield opened


@pytest.mark.spec("25.4")
async def test_a_living_key_is_admitted_and_others_are_unknown(
    client: httpx.AsyncClient, world: FacadeInstallation, key: str
) -> None:
    assert await ask(client, key) == 200
    for other in (generate(REGULAR_PREFIX), key[:-1], "", "tk_", world.key, "é"):
        answer = await client.post(CHECK, json={"api_key": other})
        assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHORIZED")


@pytest.mark.spec("20.6")
async def test_an_admin_key_with_the_request_is_tolerated(facade: Facade, key: str) -> None:
    async with facade.client("nonsense") as client:
        assert await ask(client, key) == 200


async def test_a_deleted_key_is_unknown_at_once(
    facade: Facade, client: httpx.AsyncClient, world: FacadeInstallation, key: str
) -> None:
    assert await ask(client, key) == 200
    async with facade.client(world.key) as admin:
        assert (await admin.delete(f"/api/keys/{key}")).status_code == 200
    assert await ask(client, key) == 401


@pytest.mark.spec("25.4")
async def test_changes_by_another_process_are_seen(
    facade: Facade, client: httpx.AsyncClient, world: FacadeInstallation, key: str
) -> None:
    config = ("--config", str(world.settings))
    listed = run_command("key", "list", "--organization", world.organization, *config).stdout
    number = listed.split("\t")[0]
    run_command("key", "disable", number, *config)
    await becomes(client, 401, key)
    run_command("key", "enable", number, *config)
    await becomes(client, 200, key)
    with start_facade(world.settings) as second:
        async with second.client(world.key) as other:
            fresh = (await other.post("/api/keys", json={"name": "fresh"})).json()["key"]
            # A cache miss is looked up at once, without waiting for the next poll.
            assert await ask(client, fresh) == 200
            assert (await other.delete(f"/api/keys/{fresh}")).status_code == 200
            began = utc_now()
            await becomes(client, 401, fresh)
            assert utc_now() - began < timedelta(seconds=15)


async def test_an_expired_key_is_unknown(
    client: httpx.AsyncClient, facade: Facade, world: FacadeInstallation
) -> None:
    await world.change_organization(billing={"tokenBilling": True})
    async with facade.client(world.key) as admin:

        async def created() -> str:
            # Reported again with each try: a busy machine may take longer than the key may live.
            soon = (utc_now() + timedelta(seconds=3)).isoformat()
            answer = await admin.post("/api/keys", json={"name": "ci", "expires_at": soon})
            return str(answer.json()["key"]) if answer.status_code == 200 else ""

        key = await until(created)
    await becomes(client, 401, key)


@pytest.mark.spec("25.4")
async def test_a_cap_that_is_used_up_is_402_and_a_raised_one_admits_again(
    facade: Facade, client: httpx.AsyncClient, world: FacadeInstallation
) -> None:
    key = await key_of(facade, world, max_tokens=100)
    assert await ask(client, key) == 200
    await use(world, 99)
    await use(world, 100)
    await becomes(client, 402, key)
    async with facade.client(world.key) as admin:
        raised = {"key": key, "max_tokens": 101}
        assert (await admin.post("/api/keys/update", json=raised)).status_code == 200
        assert await ask(client, key) == 200
        lowered = {"key": key, "max_tokens": 5}
        assert (await admin.post("/api/keys/update", json=lowered)).status_code == 200
        assert await ask(client, key) == 402
        (record,) = (await admin.get("/api/keys")).json()
        assert (record["tokens_used"], record["input_tokens_used"]) == (100, 100)
    await forget_use(world)


async def use(world: FacadeInstallation, tokens: int) -> None:
    """Write what the organization's only key has used, as ingest does."""
    async with world.ledger() as engine, engine.begin() as connection:
        await connection.execute(
            update(SEQUENCES).where(SEQUENCES.c.name == "usage").values(value=SEQUENCES.c.value + 1)
        )
        number = (
            await connection.execute(SEQUENCES.select().where(SEQUENCES.c.name == "usage"))
        ).one()
        found = await connection.execute(
            API_KEYS.select().where(API_KEYS.c.organization == world.organization)
        )
        key_id = found.one().id
        await connection.execute(KEY_TOTALS.delete().where(KEY_TOTALS.c.key_id == key_id))
        row = {"input_tokens": tokens, "output_tokens": 0, "cached_input_tokens": 0}
        await connection.execute(
            KEY_TOTALS.insert().values(
                key_id=key_id, requests=1, cost=0, change=number.value, **row
            )
        )


async def forget_use(world: FacadeInstallation) -> None:
    """Take back what `use` wrote: there are no events to it, and others check the same ledger."""
    async with world.ledger() as engine, engine.begin() as connection:
        own = API_KEYS.select().where(API_KEYS.c.organization == world.organization)
        key_id = (await connection.execute(own)).one().id
        await connection.execute(KEY_TOTALS.delete().where(KEY_TOTALS.c.key_id == key_id))


async def test_without_billing_a_key_is_402_and_without_its_organization_unknown(
    client: httpx.AsyncClient, world: FacadeInstallation, key: str
) -> None:
    await world.change_organization(billing={"tokenBilling": False})
    await becomes(client, 402, key)


@pytest.mark.spec("25.4")
async def test_a_key_holds_at_the_domains_of_its_organization(
    client: httpx.AsyncClient, world: FacadeInstallation, other_world: FacadeInstallation, key: str
) -> None:
    own = f"web.{world.organization}.{DOMAIN}"
    foreign = f"web.{other_world.organization}.{DOMAIN}"
    assert await ask(client, key, domain=own) == 200
    assert await ask(client, key, domain=f"WEB.debug.{world.organization}.{DOMAIN}:443") == 200
    assert await ask(client, key, domain=own, requested_host=own, path="/v1/models") == 200
    assert await ask(client, key, domain=own, requested_host="proxy.example.test") == 200
    assert await ask(client, key, domain=foreign) == 403
    assert await ask(client, key, domain=own, requested_host=foreign) == 403
    assert await ask(client, key, domain="nobody.example.test") == 403
    assert await ask(client, key, domain=f"web.nobody.{DOMAIN}") == 403
    await other_world.change_organization(entitlements={"publicInference": True})
    await becomes(client, 200, key, domain=foreign)


@pytest.mark.spec("25.4")
async def test_a_custom_domain_is_its_containers(
    facade: Facade,
    client: httpx.AsyncClient,
    world: FacadeInstallation,
    other_world: FacadeInstallation,
    key: str,
) -> None:
    domain = f"api.{world.organization}.test"
    own = f"web.{world.organization}.{DOMAIN}"
    for place, name in ((world, domain), (other_world, f"api.{other_world.organization}.test")):
        async with facade.client(place.key) as admin:
            created = await admin.post("/api/containers", json=place.body("web"))
            assert created.status_code == 201
        generated = created.json()["internal_domain"]
        await place.enclave("web", hostnames=(name, generated))
        # As after the domain was lost: the enclave asks by it as long as it lives.
        await place.report("web", phase="ready", domain=generated)
    await becomes(client, 200, key, domain=domain)
    assert await ask(client, key, domain=domain, requested_host=own) == 200
    assert await ask(client, key, domain=own, requested_host=domain) == 200
    foreign = f"api.{other_world.organization}.test"
    await becomes(client, 403, key, domain=own, requested_host=foreign)
    assert await ask(client, key, domain=foreign) == 403
    # Another organization has proven the domain since and claimed it: it is theirs now.
    holder = {"namespace": other_world.namespace, "name": "web"}
    claim = {"metadata": {"name": domain}, "spec": {"holder": holder}}
    await world.kube.create(of(HostnameClaim), claim)
    await becomes(client, 403, key, domain=domain)
    await world.end_enclave("web-a-1")
    await other_world.kube.delete(of(HostnameClaim), domain)
    assert await ask(client, key, domain=own) == 200


@pytest.mark.spec("25.4")
@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"{}", b'{"api_key": 5}', b'{"user": "y"}', b"\xff"],
)
async def test_a_malformed_body_is_400(client: httpx.AsyncClient, content: bytes) -> None:
    headers = {"content-type": "application/json"}
    answer = await client.post(CHECK, content=content, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "BAD_REQUEST")


@pytest.mark.spec("25.4")
async def test_other_methods_are_405(client: httpx.AsyncClient) -> None:
    answer = await client.get(CHECK)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@pytest.mark.spec("9.1")
async def test_the_last_use_is_written_at_shutdown(
    facade: Facade, world: FacadeInstallation, key: str
) -> None:
    with start_facade(world.settings) as second:
        async with second.client() as client:
            assert await ask(client, key) == 200
        assert second.stop() == 0
    async with facade.client(world.key) as admin:
        (record,) = (await admin.get("/api/keys")).json()
    assert record["last_used_at"] is not None


async def test_a_key_that_is_checked_too_often_is_429(
    facade: Facade, world: FacadeInstallation, key: str
) -> None:
    document = yaml.safe_load(world.settings.read_text())
    document["keyCheck"] = {"ratePerSecond": 0.001, "burst": 4}
    slow = world.settings.with_name(f"{world.organization}.yml")
    slow.write_text(yaml.safe_dump(document))
    with start_facade(slow) as second:
        async with second.client() as client:
            # Two facades run on this ledger: each gives half of the four.
            statuses = [await ask(client, key) for _ in range(5)]
            answer = await client.post(CHECK, json={"api_key": key})
    assert statuses[:1] == [200]
    assert statuses[-1] == 429
    assert statuses.count(200) <= 2
    assert answer.json()["code"] == "RATE_LIMITED"
    assert int(answer.headers["retry-after"]) > 100


@pytest.mark.spec("20.25")
async def test_many_unknown_keys_are_429_and_known_ones_go_on(
    facade: Facade, world: FacadeInstallation
) -> None:
    key = await key_of(facade, world)
    few = {"unknownPerSecond": 0.01}
    document = {**yaml.safe_load(world.settings.read_text()), "keyCheck": few, "adminKeys": few}
    settings = world.settings.with_name(f"{world.organization}-unknown.yml")
    settings.write_text(yaml.safe_dump(document))
    with start_facade(settings) as guessed:
        async with guessed.client() as client, guessed.client(world.key) as admin:
            for status in (401, 429):
                answer = await client.post(CHECK, json={"api_key": generate(REGULAR_PREFIX)})
                assert answer.status_code == status
            assert answer.json()["code"] == "RATE_LIMITED"
            assert int(answer.headers["retry-after"]) > 1
            for status in (401, 429):
                header = {"authorization": f"Bearer {generate()}"}
                answer = await client.get("/api/containers", headers=header)
                assert answer.status_code == status
            assert (await client.post(CHECK, json={"api_key": "tk_nonsense"})).status_code == 401
            assert (await client.post(CHECK, json={"api_key": key})).status_code == 200
            assert (await admin.get("/api/containers")).status_code == 200
