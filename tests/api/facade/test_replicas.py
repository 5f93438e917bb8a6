"""Two facades on one PostgreSQL: reports, checks and changes of keys at the same time."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from cloister_clients.clock import utc_now
from tests.api.facade.test_key_check import becomes
from tests.api.facade.test_usage_reports import Reporter
from tests.support.cluster import unique
from tests.support.facade import World, run_command, start_facade
from tests.support.postgres import postgres
from tests.support.usage import event
from tests.support.waiting import until

CHECK = "/api/shim/validate-key"


@pytest.fixture
def shared(world: World) -> Iterator[Path]:
    """Give settings of a facade whose ledger lies in PostgreSQL."""
    with postgres() as server:
        name = world.organization
        address = world.settings.with_name(f"{name}.url")
        url = server.url(server.empty()).set(drivername="postgresql")
        address.write_text(url.render_as_string(hide_password=False))
        address.chmod(0o600)
        document = yaml.safe_load(world.settings.read_text())
        document["ledger"] = {"urlFile": address.name, "keyMaterial": "keys.json"}
        path = world.settings.with_name(f"{name}.yml")
        path.write_text(yaml.safe_dump(document))
        yield path


async def test_two_replicas_agree_under_load(world: World, shared: Path) -> None:
    await world.change_organization(billing={"tokenBilling": True})
    world.settings = shared
    with start_facade(shared) as one, start_facade(shared) as two:
        admin = await world.new_key()
        reporter = Reporter(world)
        async with one.client(admin) as first, two.client(admin) as second:

            async def create(client: httpx.AsyncClient, name: str, cap: int | None) -> str:
                async def tried() -> str:
                    body = {"name": name, "max_tokens": cap}
                    answer = await client.post("/api/keys", json=body)
                    return str(answer.json()["key"]) if answer.status_code == 201 else ""

                return await until(tried)

            key = await create(first, "shared", None)
            capped = await create(second, "capped", 1_000)

            async def send(client: httpx.AsyncClient, part: int) -> int:
                accepted = 0
                for number in range(8):
                    # Every second report goes to both replicas.
                    nonce = f"d-{number}" if number % 2 else f"d-{part}-{number}"
                    events = [
                        event(f"{nonce}-{n}", utc_now(), api_key=(key, capped)[n % 2])
                        for n in range(20)
                    ]
                    answer = await reporter.send(client, events, f"{unique('d')}")
                    assert answer.status_code == 200, answer.text
                    accepted += answer.json()["accepted"]
                return accepted

            async def change(client: httpx.AsyncClient, part: int) -> None:
                for number in range(5):
                    made = await create(client, f"{part}-{number}", None)
                    answer = await client.post(CHECK, json={"api_key": made})
                    assert answer.status_code == 200
                    assert (await client.delete(f"/api/keys/{made}")).status_code == 200

            async def look(client: httpx.AsyncClient) -> None:
                for _ in range(60):
                    assert (await client.post(CHECK, json={"api_key": key})).status_code == 200

            results = await asyncio.gather(
                *(send(client, part) for part, client in enumerate((first, second))),
                *(change(client, part) for part, client in enumerate((first, second))),
                *(look(client) for client in (first, second)),
            )
            # Four of eight reports were the same at both: 12 distinct ones of 20 events.
            assert sum(filter(None, results)) == 240
            for client in (first, second):
                found = (await client.get("/api/billing/usage")).json()
                assert (found["requests"], found["tokens"]) == (240, 240 * 110)
                await becomes(client, 402, capped)
    checked = run_command("ledger", "check", "--config", str(shared))
    assert "sums are the sums of events" in checked.stdout
