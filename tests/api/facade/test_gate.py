"""The gate of an enclave at a real facade: no stand-in answers it here."""

import contextlib
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from cloister_api.ledger.keys.key_material import REGULAR_PREFIX, generate
from cloister_crds.config import Shim
from tests.support.programs.facade import DOMAIN, Facade, FacadeInstallation, start_facade
from tests.support.programs.guest_part import RunningPart
from tests.support.servers.key_gate import running_gate
from tests.support.waiting import until

SHIM = Shim(upstream_port=80, paths=("/*",), upstream_container="web", authenticated=True)


@dataclass(frozen=True)
class Asker:
    """Asks the gate as the shim does."""

    client: httpx.AsyncClient
    """A client on the gate's socket."""
    host: str
    """Host name of the enclave."""

    async def status(self, key: str, host: str | None = None) -> int:
        """Return the gate's decision about a key."""
        headers = {
            "Authorization": f"Bearer {key}",
            "X-Gate-Host": host or self.host,
            "X-Gate-Target": "/v1/chat/completions?stream=1",
            "X-Gate-Address": "192.0.2.1",
        }
        return (await self.client.get("/key", headers=headers)).status_code

    async def becomes(self, wanted: int, key: str, host: str | None = None) -> None:
        """Wait until the gate says something of a key.

        It says 503 while the facade does not respond within three seconds.
        """

        async def said() -> bool:
            return await self.status(key, host) == wanted

        await until(said, within=30)


@contextlib.asynccontextmanager
async def asking(gate: RunningPart, domain: str) -> AsyncIterator[Asker]:
    """Ask a gate until the block ends."""
    transport = httpx.AsyncHTTPTransport(uds=str(gate.socket))
    async with httpx.AsyncClient(transport=transport, base_url="http://gate", timeout=60) as client:
        yield Asker(client, domain)


async def new_key(facade: Facade, world: FacadeInstallation, name: str) -> str:
    """Make a key of an organization that pays."""
    await world.change_organization(billing={"tokenBilling": True})

    async def created() -> str:
        async with facade.client(world.key) as client:
            answer = await client.post("/api/keys", json={"name": name})
        return str(answer.json()["key"]) if answer.status_code == 200 else ""

    return await until(created)


@pytest.fixture
async def asker(facade: Facade, world: FacadeInstallation) -> AsyncIterator[Asker]:
    domain = f"web.{world.organization}.{DOMAIN}"
    with (
        tempfile.TemporaryDirectory(prefix="gate") as name,
        running_gate(Path(name), SHIM, facade.base, domain=domain) as gate,
    ):
        async with asking(gate, domain) as made:
            yield made


async def test_keys_are_judged_by_the_facade(
    facade: Facade, world: FacadeInstallation, other_world: FacadeInstallation, asker: Asker
) -> None:
    key = await new_key(facade, world, "own")
    foreign = await new_key(facade, other_world, "foreign")
    await asker.becomes(200, key)
    await asker.becomes(403, foreign)
    await asker.becomes(403, key, f"web.{other_world.organization}.{DOMAIN}")
    await asker.becomes(401, generate(REGULAR_PREFIX))
    await asker.becomes(401, "nonsense")
    await world.change_organization(billing={"tokenBilling": False})
    await asker.becomes(402, key)
    await world.change_organization(billing={"tokenBilling": True})
    await asker.becomes(200, key)
    async with facade.client(world.key) as admin:
        assert (await admin.delete(f"/api/keys/{key}")).status_code == 200
    await asker.becomes(401, key)


async def test_while_the_facade_is_down_uncached_keys_are_refused(
    facade: Facade, world: FacadeInstallation
) -> None:
    known, other = [await new_key(facade, world, name) for name in ("known", "other")]
    domain = f"web.{world.organization}.{DOMAIN}"
    with (
        tempfile.TemporaryDirectory(prefix="gate") as name,
        start_facade(world.settings) as second,
        running_gate(Path(name), SHIM, second.base, domain=domain) as gate,
    ):
        async with asking(gate, domain) as asker:
            await asker.becomes(200, known)
            second.kill()
            await asker.becomes(503, other)
            assert await asker.status(known) == 200
