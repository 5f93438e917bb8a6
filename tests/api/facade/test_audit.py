"""GET /api/audit: pages, filters, CSV, and whose rows they are."""

import csv
import io
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from cloister_api.ledger.audit import AuditTrail
from tests.support.programs.facade import ADMIN, Facade, FacadeInstallation

PATH = "/api/audit"


async def listed(client: httpx.AsyncClient, **query: Any) -> list[dict[str, Any]]:
    answer = await client.get(PATH, params=query)
    assert answer.status_code == 200, answer.text
    rows: list[dict[str, Any]] = answer.json()
    return rows


async def attempted(client: httpx.AsyncClient, world: FacadeInstallation) -> str:
    """Create, refuse and delete something, and return the container's identifier."""
    made = await client.post("/api/containers", json=world.body("web"))
    assert made.status_code == 201, made.text
    refused = await client.post("/api/containers", json=world.body("web"))
    assert refused.status_code == 409
    assert (await client.delete(made.headers["location"])).status_code == 204
    identity: str = made.json()["id"]
    return identity


async def test_changes_are_listed_newest_first_and_chosen_by_field(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        identity = await attempted(client, world)
        rows = await listed(client)
        assert [(row["action"], row["target"], row["result"]) for row in rows[:3]] == [
            ("container.delete", identity, "204"),
            ("container.create", "web", "409 CONFLICT"),
            ("container.create", identity, "201"),
        ]
        assert {row["actor"] for row in rows[:3]} == {ADMIN}
        assert rows[0]["key_id"] == (await world.record_of(world.key)).id
        # The command that made the admin key.
        assert (rows[-1]["action"], rows[-1]["key_id"]) == ("admin_key.create", None)
        assert await listed(client, target=identity) == [rows[0], rows[2]]
        assert await listed(client, action="container.create", target="web") == [rows[1]]
        assert await listed(client, actor="nobody") == []
        assert await listed(client, since=rows[1]["at"]) == rows[:2]
        for wrong, field in (({"since": "yesterday"}, "since"), ({"actor": "\0"}, "actor")):
            answer = await client.get(PATH, params=wrong)
            assert answer.status_code == 400, answer.text
            assert answer.json()["details"][0]["field"] == field


async def test_pages_follow_one_another_with_their_filters(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        await attempted(client, world)
        whole = await listed(client, actor=ADMIN, since="2020-01-01T00:00:00+01:00")
        assert len(whole) == 3
        found: list[dict[str, Any]] = []
        path: str | None = f"{PATH}?limit=1&actor={ADMIN}&since=2020-01-01T00:00:00Z"
        while path is not None:
            answer = await client.get(path)
            assert answer.status_code == 200, answer.text
            found += answer.json()
            path = answer.links["next"]["url"] if "next" in answer.links else None
            # What happens meanwhile is on no later page.
            await client.delete("/api/containers/x")
        assert found == whole
        for cursor in ("x", "WyJ4Il0", "W10"):
            answer = await client.get(PATH, params={"cursor": cursor})
            assert answer.json()["details"][0]["field"] == "cursor", answer.text


async def test_rows_are_sent_as_csv_where_that_is_accepted(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        await attempted(client, world)
        rows = await listed(client, limit=2)
        answer = await client.get(PATH, params={"limit": 2}, headers={"Accept": "text/csv"})
        assert answer.headers["content-type"].startswith("text/csv")
        assert "next" in answer.links
        read = list(csv.DictReader(io.StringIO(answer.text)))
        cells = [
            {key: "" if value is None else str(value) for key, value in row.items()} for row in rows
        ]
        assert read == cells


@pytest.mark.attack("foreign-audit-trail")
async def test_another_organization_and_an_earlier_one_of_the_name_are_not_seen(
    facade: Facade, world: FacadeInstallation, other_world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client, facade.client(other_world.key) as other:
        identity = await attempted(client, world)
        assert await listed(other, target=identity) == []
        own = await listed(client)
        assert own
        (row,) = [each for each in await world.audit() if each.result == "201"]
        async with world.ledger() as engine:
            trail = AuditTrail(engine)
            # Of an Organization that was deleted, and of a release that wrote no identifiers.
            await trail.add(replace(row, organization_id="another", target="foreign"))
            old = replace(row, organization_id=None, target="old")
            await trail.add(replace(old, at=row.at - timedelta(days=400)))
            assert await listed(client) == own
            await trail.add(old)
        assert [each["target"] for each in (await listed(client))[:1]] == ["old"]
