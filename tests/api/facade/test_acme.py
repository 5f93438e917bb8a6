"""Certificates from an ACME authority, proven by DNS: real authority, name server and resolver.

Each facade here is a process of its own; those of one test share a ledger, as replicas do.
"""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.verification import PolicyBuilder, Store
from sqlalchemy import select

from cloister_api.ledger.database import open_ledger
from cloister_api.ledger.tables import CERTIFICATE_ORDERS, CERTIFICATE_SUBMISSIONS
from cloister_crds.names import challenge_name
from tests.support.builders.signing_requests import new_key, signing_request
from tests.support.programs.facade import (
    DOMAIN,
    Facade,
    FacadeInstallation,
    run_command,
    start_facade,
)
from tests.support.programs.facade_enclaves import challenge_label, enclave_with_token
from tests.support.servers.acme import AcmeNameServer, Pebble, name_server, pebble, resolver
from tests.support.waiting import until

pytestmark = pytest.mark.programs("pebble")
CUSTOM = "custom.example"
WAITS = "waits for the rate limits"
PATIENCE = 200.0


@dataclass
class Internet:
    """What an installation finds outside."""

    names: AcmeNameServer
    """Name server of the zones."""
    resolver: str
    """Address of a resolver."""
    authority: Pebble
    """The authority."""
    folder: Path
    """For the settings and ledgers of facades."""
    template: Path
    """Settings of a facade without certificates."""
    made: list[Path] = field(default_factory=list)
    """Settings that were made."""

    def settings(self, **acme: Any) -> Path:
        """Make settings of a facade with a ledger of its own."""
        folder = self.folder / f"{len(self.made)}"
        folder.mkdir()
        document = yaml.safe_load(self.template.read_text())
        shutil.copy(self.template.parent / document["ledger"]["keyMaterial"], folder)
        (folder / document["ledger"]["keyMaterial"]).chmod(0o600)
        dns = {
            "zones": [DOMAIN],
            "server": self.names.address,
            "keyName": "updates",
            "keyFile": str(self.names.key_file),
            "resolvers": [self.resolver],
        }
        document["certificates"] = {
            "issuer": "acme",
            "acme": {
                "directory": self.authority.directory,
                "caBundle": str(self.authority.ca_bundle),
                "accountKey": "account.key",
                "termsOfServiceAgreed": True,
                "contact": ["mailto:ops@example.com"],
                "firstRetrySeconds": 1,
                "dns": dns,
                **acme,
            },
        }
        path = folder / "api.yml"
        path.write_text(yaml.safe_dump(document))
        run_command("ca", "account-key", "--config", str(path))
        self.made.append(path)
        return path


@pytest.fixture(scope="module")
def internet(facade_settings: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Internet]:
    """Return an authority, a name server and a resolver."""
    folder = tmp_path_factory.mktemp("acme")
    with (
        name_server(folder / "names", DOMAIN, CUSTOM) as names,
        resolver(folder / "resolver", names) as address,
        pebble(folder / "pebble", address) as authority,
    ):
        yield Internet(names, address, authority, folder, facade_settings)


@pytest.fixture(scope="module")
def settings(internet: Internet) -> Path:
    """Return the settings of the facade that the tests share."""
    return internet.settings()


@pytest.fixture(scope="module")
def ordering(settings: Path) -> Iterator[Facade]:
    """Return a facade with an account at the authority."""
    with start_facade(settings) as running:
        yield running


@dataclass
class Asker:
    """An enclave that asks with one request."""

    clients: Sequence[httpx.AsyncClient]
    """Facades, asked in turn."""
    token: str = field(repr=False)
    """Its token."""
    request: str = field(repr=False)
    """Its signing request."""
    key: ec.EllipticCurvePrivateKey = field(repr=False)
    """Its key, to which its token is bound."""
    asked: int = 0
    """How often it has asked."""

    async def ask(self) -> httpx.Response:
        """Ask the next facade."""
        client = self.clients[self.asked % len(self.clients)]
        self.asked += 1
        headers = {"Authorization": f"Bearer {self.token}"}
        return await client.post("/api/shim/cert", json={"csr": self.request}, headers=headers)

    async def queued(self) -> httpx.Response:
        """Ask until the order is in the queue, which the facade's cache may delay."""

        async def taken() -> httpx.Response | None:
            answer = await self.ask()
            assert answer.status_code in {202, 401}, answer.text
            return answer if answer.status_code == 202 else None

        answer = await until(taken, what="the order in the queue")
        assert answer is not None
        return answer

    async def issued(self) -> list[x509.Certificate]:
        """Ask until the certificate is there."""

        async def given() -> httpx.Response | None:
            with contextlib.suppress(httpx.TransportError):
                answer = await self.ask()
                assert answer.status_code in {200, 202, 401}, answer.text
                return answer if answer.status_code == 200 else None
            return None

        answer = await until(given, within=PATIENCE, every=0.5, what="the certificate")
        assert answer is not None
        return x509.load_pem_x509_certificates(answer.json()["certificate"].encode())

    async def says(self, words: str) -> httpx.Response:
        """Poll until the response has a text."""

        async def said() -> httpx.Response | None:
            answer = await self.ask()
            assert words in answer.text, answer.text
            return answer

        answer = await until(said, within=PATIENCE, every=0.5, what=words)
        assert answer is not None
        return answer


async def an_enclave(
    clients: Sequence[httpx.AsyncClient], world: FacadeInstallation, name: str, *hostnames: str
) -> Asker:
    """Make an Enclave that asks for its host names."""
    token = await enclave_with_token(world, name, *hostnames)
    names = hostnames or (f"{name}.{world.organization}.{DOMAIN}",)
    key = new_key()
    return Asker(clients, token, signing_request(*names, key=key), key)


@pytest.fixture
async def client(ordering: Facade) -> AsyncIterator[httpx.AsyncClient]:
    """Return a client of the facade."""
    async with ordering.client() as made:
        yield made


async def rows(settings: Path) -> tuple[list[Any], list[Any]]:
    """Return orders and submissions of a ledger."""
    engine = open_ledger(settings.parent / "ledger.db")
    try:
        async with engine.connect() as connection:
            orders = (await connection.execute(select(CERTIFICATE_ORDERS))).all()
            sent = (await connection.execute(select(CERTIFICATE_SUBMISSIONS))).all()
    finally:
        await engine.dispose()
    return list(orders), list(sent)


async def stands(settings: Path, host: str, *, attempts: int) -> None:
    """Wait for attempts that fail; the order at the authority is the same after them."""

    async def look() -> tuple[Any, int]:
        orders, sent = await rows(settings)
        (order,) = (row for row in orders if row.names == host)
        return order, [row.names for row in sent].count(host)

    before, sent_before = await look()

    async def tried() -> bool:
        order, _ = await look()
        return bool(order.failures >= before.failures + attempts)

    await until(tried, within=PATIENCE, what=f"{attempts} attempts")
    after, sent_after = await look()
    assert (after.order_url, sent_after) == (before.order_url, sent_before)


@pytest.mark.spec("26.3")
async def test_an_order_becomes_a_certificate(
    client: httpx.AsyncClient, internet: Internet, world: FacadeInstallation
) -> None:
    asker = await an_enclave([client], world, "web")
    host = f"web.{world.organization}.{DOMAIN}"
    queued = await asker.queued()
    assert queued.json()["status"] == "queued"
    assert int(queued.headers["retry-after"]) == queued.json()["retry_after"] >= 1
    leaf, *between = await asker.issued()
    root = x509.load_pem_x509_certificate(internet.authority.authorities()[0].encode())
    verifier = PolicyBuilder().store(Store([root])).build_server_verifier(x509.DNSName(host))
    assert verifier.verify(leaf, between)

    async def withdrawn() -> bool:
        return internet.names.texts(f"_acme-challenge.{host}") == []

    await until(withdrawn, what="the proof to be withdrawn")


async def test_a_custom_domain_is_proven_by_its_cname(
    client: httpx.AsyncClient, settings: Path, internet: Internet, world: FacadeInstallation
) -> None:
    host = f"{world.organization}.{CUSTOM}"
    asker = await an_enclave([client], world, "custom", host)
    await asker.queued()
    target = f"{challenge_name(challenge_label(world, host))}.{DOMAIN}."
    told = await asker.says(f"_acme-challenge.{host} CNAME {target}")
    assert told.status_code == 202
    await stands(settings, host, attempts=2)
    internet.names.add(CUSTOM, f"_acme-challenge.{host}.", "CNAME", target)
    leaf = (await asker.issued())[0]
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [host]


async def test_servers_that_are_away_put_orders_off(
    client: httpx.AsyncClient, internet: Internet, world: FacadeInstallation
) -> None:
    internet.names.stop()
    try:
        asker = await an_enclave([client], world, "away")
        await asker.queued()
        answer = await asker.says("failed: ")
        assert internet.names.address in answer.json()["message"]
        internet.authority.stop()
        other = await an_enclave([client], world, "other")
        await other.queued()
        await other.says("sent an unexpected response")
    finally:
        internet.names.start()
        if internet.authority.process is None:
            internet.authority.start()
    await asyncio.gather(asker.issued(), other.issued())


async def test_two_replicas_and_a_kill_lose_and_double_nothing(
    internet: Internet, world: FacadeInstallation
) -> None:
    settings = internet.settings()
    internet.names.stop()
    with start_facade(settings) as first, start_facade(settings) as second:
        async with first.client() as one, second.client() as two:
            clients = [one, two]
            askers = [await an_enclave(clients, world, f"many-{n}") for n in range(6)]
            for asker in askers:
                await asker.queued()
                await asker.queued()
            # Every order has been sent, and waits for the name server, when one replica dies.

            async def all_sent() -> bool:
                orders, _ = await rows(settings)
                return all(row.order_url for row in orders)

            await until(all_sent, what="all orders to be sent")
            first.kill()
            internet.names.start()
            for asker in askers:
                asker.clients = [two]
            chains = await asyncio.gather(*(asker.issued() for asker in askers))
    assert len({chain[0].serial_number for chain in chains}) == len(askers)
    orders, sent = await rows(settings)
    assert [row.state for row in orders] == ["issued"] * len(askers)
    assert len(sent) == len(askers), "an order was sent twice"


async def test_the_limits_of_the_authority_are_kept(
    internet: Internet, world: FacadeInstallation
) -> None:
    # Attempts that fail count too, as they do at authorities; a busy machine may need a second.
    limits = {"names": {"count": 3, "seconds": 3600}}
    with start_facade(internet.settings(limits=limits)) as running:
        async with running.client() as client:
            asker = await an_enclave([client], world, "limited")
            host = f"limited.{world.organization}.{DOMAIN}"

            async def settled() -> httpx.Response | None:
                answer = await asker.ask()
                return answer if answer.status_code == 200 or WAITS in answer.text else None

            answer: httpx.Response | None = None
            for _ in range(4):
                await asker.queued()
                answer = await until(settled, within=PATIENCE, every=0.5, what="an end")
                assert answer is not None
                if answer.status_code == 202:
                    break
                asker.request = signing_request(host, key=asker.key)
            assert answer is not None
            assert (answer.status_code, answer.headers["retry-after"]) == (202, "300")
            free = await an_enclave([client], world, "free")
            await free.queued()
            await free.issued()


async def test_an_order_that_cannot_be_filled_is_given_up(
    internet: Internet, world: FacadeInstallation
) -> None:
    with start_facade(internet.settings(attempts=1)) as running:
        async with running.client() as client:
            host = f"nobody.{CUSTOM}"
            asker = await an_enclave([client], world, "nobody", host)
            await asker.queued()
            answer = await asker.says("send a new request")
            assert (answer.status_code, answer.json()["code"]) == (409, "CONFLICT")
            assert "CNAME" in answer.json()["error"]
            asker.request = signing_request(host, key=asker.key)
            await asker.queued()


def test_a_missing_key_is_reported_before_the_start(internet: Internet) -> None:
    settings = internet.settings()
    (settings.parent / "account.key").unlink()
    started = run_command("api", "--config", str(settings), check=False)
    assert started.returncode == 1
    assert "account.key does not exist; `cloister ca` creates it" in started.stderr
