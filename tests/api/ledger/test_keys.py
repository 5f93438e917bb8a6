"""Keys in the ledger on both databases: what is kept, who waits for whom, rotation."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.auth.admin_keys import AdminKeyCache
from cloister_api.auth.api_keys import ApiKeyCache, HostnameOwners
from cloister_api.auth.authenticator import Principal
from cloister_api.auth.token_bucket import UnknownKeyLimit
from cloister_api.errors import ApiError
from cloister_api.ledger.audit import AuditRow, AuditTrail
from cloister_api.ledger.keys import rotation
from cloister_api.ledger.keys.admin_keys import AdminKeys
from cloister_api.ledger.keys.api_keys import ApiKey, ApiKeys
from cloister_api.ledger.keys.key_material import KeyMaterial, MaterialError
from cloister_api.ledger.leases import Replicas
from cloister_api.ledger.tables import API_KEYS
from cloister_api.services.api_keys import ApiKeyService
from cloister_crds.installation import DefaultLimits
from cloister_crds.kinds import Organization
from cloister_crds.kinds.organization import Role

NOW = datetime(2026, 11, 22, 4, 30, tzinfo=UTC)
ACME = Organization.read(
    {
        "metadata": {"name": "acme", "uid": "id-1"},
        "spec": {"namespace": "org-acme", "billing": {"tokenBilling": True}},
    }
)


async def make(keys: ApiKeys, name: str = "ci", **more: Any) -> tuple[ApiKey, str]:
    wanted = {"organization": "acme", "organization_id": "id-1", "user": "ada", "now": NOW}
    return await keys.create(name=name, **{**wanted, **more})


def book_on(engine: AsyncEngine, material: KeyMaterial) -> ApiKeyCache:
    """Make the key check of a replica, for the one organization."""
    hosts = cast("HostnameOwners", SimpleNamespace(organization=lambda _: ACME))
    replicas = Replicas(engine, str(id(engine)))
    return ApiKeyCache(engine, material, hosts, lambda: NOW, replicas, None, UnknownKeyLimit(1000))


async def status(cache: ApiKeyCache, value: str) -> int:
    try:
        await cache.check(value, None, None)
    except ApiError as error:
        return error.status
    return 200


async def test_a_key_is_kept_with_everything_but_its_value(
    engine: AsyncEngine, material: KeyMaterial
) -> None:
    keys = ApiKeys(engine, material)
    later = NOW + timedelta(days=1)
    made, value = await make(keys, expires_at=later, max_tokens=2**53 - 1, metadata='{"a":"é"}')
    assert await keys.of_organization("id-1") == [made]
    assert (made.expires_at, made.max_tokens, made.metadata) == (later, 2**53 - 1, {"a": "é"})
    assert made.index == material.index(value)
    assert await keys.find(made.index, "id-1") == made
    assert await keys.find(made.index, "id-2") is None
    assert await keys.values("id-1", "ada") == {made.id: value}
    assert await keys.values("id-1", "bob") == {}
    async with engine.connect() as connection:
        row = (await connection.execute(select(API_KEYS))).mappings().one()
    assert value not in repr(dict(row))


class CountingSealer:
    """Key material that counts what it unseals."""

    def __init__(self, material: KeyMaterial) -> None:
        self.index, self.seal = material.index, material.seal
        self._material = material
        self.unsealed = 0

    def unseal(self, sealed: str, *, context: str) -> str:
        """Unseal and count."""
        self.unsealed += 1
        return self._material.unseal(sealed, context=context)


async def test_a_page_of_keys_reads_and_unseals_no_other_keys(
    engine: AsyncEngine, material: KeyMaterial
) -> None:
    sealer = CountingSealer(material)
    installation = SimpleNamespace(default_limits=DefaultLimits())
    base = SimpleNamespace(engine=engine, clock=lambda: NOW, installation=installation)
    service = ApiKeyService(cast("Any", base), sealer)
    made = [await make(ApiKeys(engine, material), f"key-{number}") for number in range(7)]
    await make(ApiKeys(engine, material), "theirs", organization_id="id-2")
    principal = Principal("k1", "ada", ACME, role=Role.ADMIN)
    page = await service.all(principal, after=made[1][0].id, limit=3)
    assert [(each.id, each.key) for each in page] == [(key.id, v) for key, v in made[2:5]]
    assert sealer.unsealed == 3
    assert [each.id for each in await service.all(principal, after=made[5][0].id)] == [
        made[6][0].id
    ]
    assert await service.all(principal, after=made[6][0].id, limit=3) == []
    assert len(await service.all(principal)) == 7
    sealer.unsealed = 0
    assert (await service.record(principal, made[3][0].id)).key == made[3][1]
    assert sealer.unsealed == 1


async def test_a_deleted_key_loses_its_value(engine: AsyncEngine, material: KeyMaterial) -> None:
    keys = ApiKeys(engine, material)
    made, _ = await make(keys)
    again, value = await make(keys)
    await make(keys, organization_id="id-2")
    assert await keys.delete(made.id, now=NOW)
    assert not await keys.delete(made.id, now=NOW)
    assert await keys.values("id-1", "ada") == {again.id: value}, "one of its name is untouched"
    async with engine.connect() as connection:
        query = select(API_KEYS.c.sealed).where(API_KEYS.c.id == made.id)
        assert (await connection.execute(query)).scalar_one() == ""


async def test_a_request_finds_the_key_that_it_made(
    engine: AsyncEngine, material: KeyMaterial
) -> None:
    keys = ApiKeys(engine, material)
    await make(keys, "of-no-request")
    several = await asyncio.gather(*(make(keys, "minted", request="d" * 64) for _ in range(4)))
    made, value = several[0]
    assert several == [(made, value)] * 4
    assert await keys.made_by("d" * 64, "id-1") == (made, value)
    assert await keys.made_by("d" * 64, "id-2") is None
    assert await keys.made_by("e" * 64, "id-1") is None
    assert await keys.delete(made.id, now=NOW)
    assert await keys.made_by("d" * 64, "id-1") is None


@pytest.mark.spec("25.4")
async def test_every_replica_sees_changes_in_order(
    engine: AsyncEngine, second: AsyncEngine, material: KeyMaterial
) -> None:
    here, there = book_on(engine, material), book_on(second, material)
    await here.refresh()
    keys, others = ApiKeys(engine, material), ApiKeys(second, material)

    async def change(table: ApiKeys, part: int) -> dict[str, str]:
        made = [await make(table, f"{part}-{number}") for number in range(8)]
        await table.change(made[0][0].id, disabled=True)
        await table.delete(made[1][0].id, now=NOW)
        return {key.name: value for key, value in made}

    async def look() -> None:
        for _ in range(30):
            await there.refresh()

    parts = await asyncio.gather(
        *(change(keys if part % 2 else others, part) for part in range(4)), look()
    )
    await there.refresh()
    await here.refresh()
    for part in range(4):
        values = cast("dict[str, str]", parts[part])
        for name, value in values.items():
            expected = 401 if name.endswith(("-0", "-1")) else 200
            assert (await status(here, value), await status(there, value)) == (expected, expected)


@pytest.mark.spec("9.1", "25.5")
async def test_last_uses_are_written_behind(engine: AsyncEngine, material: KeyMaterial) -> None:
    keys, cache = ApiKeys(engine, material), book_on(engine, material)
    made, value = await make(keys)
    assert await status(cache, value) == 200
    assert (await keys.of_organization("id-1"))[0].last_used_at is None
    await cache.close()
    assert (await keys.of_organization("id-1"))[0].last_used_at == NOW
    await keys.used({made.id: NOW - timedelta(days=1)})
    assert (await keys.of_organization("id-1"))[0].last_used_at == NOW


async def test_replicas_count_those_that_were_heard_of(
    engine: AsyncEngine, second: AsyncEngine
) -> None:
    one, two = Replicas(engine, "one"), Replicas(second, "two")
    assert [await one.beat(NOW), await two.beat(NOW)] == [1, 2]
    assert await one.beat(NOW + timedelta(seconds=14)) == 2
    assert await one.beat(NOW + timedelta(seconds=16)) == 1
    await two.beat(NOW + timedelta(seconds=17))
    await one.leave()
    assert await two.beat(NOW + timedelta(seconds=18)) == 1


async def test_admin_keys_and_the_audit_trail_work_alike(
    engine: AsyncEngine, material: KeyMaterial
) -> None:
    keys = AdminKeys(engine, material)
    cache = AdminKeyCache(keys, material, UnknownKeyLimit(1000))
    await cache.refresh()
    made, value = await keys.create(
        organization="acme", organization_id="id-1", user="ada", name="ci", now=NOW
    )
    assert await cache.find(cache.index(value)) == made
    assert await keys.value(made.id) == value
    await cache.revoke(made, because="demoted", now=NOW)
    found = await cache.find(made.index)
    assert found is not None
    assert found.revoked_at == NOW
    cache.note_use(made, NOW)
    await cache.write_uses()
    assert (await keys.all())[0].last_used_at == NOW
    trail = AuditTrail(engine)
    row = AuditRow(NOW, "r1", "acme", "ada", None, "container.create", "id-1", "201")
    await trail.add(row)
    assert await trail.of("acme") == [row]
    assert await trail.contains(action="container.create", target="id-1", result="201")


async def test_sealed_values_survive_a_change_of_the_sealing_key(
    engine: AsyncEngine, material: KeyMaterial, tmp_path: Path
) -> None:
    path = tmp_path / "keys.json"
    admin, admin_value = await AdminKeys(engine, material).create(
        organization="acme", organization_id="id-1", user="ada", name="ci", now=NOW
    )
    made = [await make(ApiKeys(engine, material), str(number)) for number in range(3)]
    deleted, _ = await make(ApiKeys(engine, material), "deleted")
    await ApiKeys(engine, material).delete(deleted.id, now=NOW)
    both = rotation.begin(path)
    assert rotation.begin(path) == both
    assert await rotation.reseal(engine, both) == 4
    assert await rotation.reseal(engine, both) == 0
    # A facade that has not seen the new file yet seals with the previous key.
    late, late_value = await make(ApiKeys(engine, material), "late")
    assert await rotation.finish(engine, path) == 1
    last = KeyMaterial.read(path)
    assert last.previous_key is None
    values = await ApiKeys(engine, last).values("id-1", "ada")
    assert values == {**{key.id: value for key, value in made}, late.id: late_value}
    assert await AdminKeys(engine, last).value(admin.id) == admin_value
    with pytest.raises(MaterialError):
        await ApiKeys(engine, material).values("id-1", "ada")


async def test_a_sealed_value_does_not_open_in_another_row(
    engine: AsyncEngine, material: KeyMaterial
) -> None:
    keys = ApiKeys(engine, material)
    one, _ = await make(keys, "one")
    two, _ = await make(keys, "two")
    async with engine.begin() as connection:
        await connection.execute(
            text(
                "UPDATE api_keys SET sealed = (SELECT sealed FROM api_keys WHERE id = :one) "
                "WHERE id = :two"
            ),
            {"one": one.id, "two": two.id},
        )
    with pytest.raises(MaterialError):
        await keys.values("id-1", "ada")
