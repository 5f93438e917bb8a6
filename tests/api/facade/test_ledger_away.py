"""The database of the facade goes away and comes back: nothing is done that is not recorded."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
import yaml

from cloister_api.auth.authenticator import Principal
from cloister_api.context import Context
from cloister_api.errors import ApiError
from cloister_api.ledger.audit import BEGUN, AuditTrail
from cloister_api.ledger.database import open_ledger
from cloister_api.routes.audit import AuditedWrite
from cloister_clients.clock import utc_now
from cloister_crds.kinds import Organization
from cloister_crds.kinds.organization import Role
from tests.support.ports import free_port
from tests.support.programs.dashboard import Dashboard, Person, dashboard_address
from tests.support.programs.facade import ADMIN, FacadeInstallation, start_facade
from tests.support.servers.postgres import Postgres, postgres
from tests.support.waiting import until

AWAY, BACK = "the ledger is away: ", "the ledger responds again"
REFUSED = "does not respond at present"


@pytest.fixture
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture
def settings(world: FacadeInstallation, server: Postgres) -> Path:
    """Return settings of a facade with a dashboard, whose ledger is in PostgreSQL."""
    address = world.settings.with_name(f"{world.organization}.url")
    url = server.url(server.empty()).set(drivername="postgresql")
    address.write_text(url.render_as_string(hide_password=False))
    address.chmod(0o600)
    document = yaml.safe_load(world.settings.read_text())
    document["ledger"] = {"urlFile": address.name, "keyMaterial": "keys.json"}
    port = free_port()
    document["dashboard"] = {"address": f"http://127.0.0.1:{port}", "listen": {"port": port}}
    path = world.settings.with_name(f"{world.organization}.yml")
    path.write_text(yaml.safe_dump(document))
    world.settings = path
    return path


def assert_refused(answer: httpx.Response) -> None:
    assert answer.status_code == 503, answer.text
    assert answer.json()["code"] == "UNAVAILABLE"
    assert REFUSED in answer.json()["error"]
    assert int(answer.headers["retry-after"]) >= 1


def assert_page(answer: httpx.Response) -> None:
    assert answer.status_code == 503, answer.text
    assert REFUSED in answer.text
    assert int(answer.headers["retry-after"]) >= 1


async def writes_are_refused(client: httpx.AsyncClient, world: FacadeInstallation) -> None:
    """Send calls that reach the ledger, and some that do not."""
    secret = {"name": "TOKEN", "value": "made-up"}
    container = (await client.get("/api/containers")).json()[0]["id"]
    for method, path, body in (
        ("POST", "/api/containers", world.body("second")),
        ("DELETE", f"/api/containers/{container}", None),
        ("POST", "/api/secrets", secret),
        ("POST", "/api/keys", {"name": "k"}),
        ("GET", "/api/keys", None),
        ("GET", "/api/audit", None),
    ):
        assert_refused(await client.request(method, path, json=body))


async def test_a_stopped_database_is_503_and_nothing_is_done(
    world: FacadeInstallation, server: Postgres, settings: Path
) -> None:
    with start_facade(settings) as facade:
        world.key = await world.new_key()
        dashboard = Dashboard(facade, dashboard_address(settings), settings)
        async with facade.client(world.key) as client, dashboard.signed_in(ADMIN) as person:
            await until(lambda: accepted(client, "POST", "/api/containers", json=world.body("web")))
            await person.shows(f"/o/{world.organization}/containers", "web")
            link = dashboard.link(ADMIN)
            for _ in range(2):
                await outage(server, client, world, person, link)
            rows = (await client.get("/api/audit")).json()
        log = facade.log.read_text()
    assert await world.container("second") is None
    assert await world.container("web") is not None
    assert BEGUN not in {row["result"] for row in rows}
    assert (log.count(AWAY), log.count(BACK)) == (2, 2), log
    assert "Traceback" not in log
    assert log.count("\n") < 200


async def outage(
    server: Postgres,
    client: httpx.AsyncClient,
    world: FacadeInstallation,
    person: Person,
    link: str,
) -> None:
    """Stop the database, look at what the facade does without it, and start it again."""
    server.stop()
    await writes_are_refused(client, world)
    assert (await client.get("/api/containers")).status_code == 200
    assert (await client.get("/readyz")).status_code == 200
    assert_page(await person.get(f"/o/{world.organization}/containers"))
    assert_page(await person.get(link))
    server.start()
    await until(lambda: accepted(client, "GET", "/api/audit"))
    body = {"name": "TOKEN", "value": "made-up"}
    await until(lambda: accepted(client, "POST", "/api/secrets", json=body))
    await until(lambda: accepted(client, "DELETE", "/api/secrets/TOKEN"))
    await person.shows(f"/o/{world.organization}/containers", "web")


async def accepted(client: httpx.AsyncClient, method: str, path: str, **more: Any) -> bool:
    return (await client.request(method, path, **more)).is_success


async def test_a_write_that_ends_without_the_database_stays_begun(server: Postgres) -> None:
    engine = open_ledger(server.ledger())
    trail = AuditTrail(engine)
    context = cast("Context", SimpleNamespace(audit=trail, clock=utc_now))
    organization = Organization.model_validate(
        {"metadata": {"name": "acme", "uid": "1"}, "spec": {"namespace": "org-acme"}}
    )
    principal = Principal("", ADMIN, organization, role=Role.ADMIN)
    try:
        async with AuditedWrite(context, principal, "r", "container.stop", "web"):
            server.stop()
        with pytest.raises(ApiError) as refused:
            async with AuditedWrite(context, principal, "r", "container.start", "web"):
                pytest.fail("it is done without its row")
        assert (refused.value.status, refused.value.result) == (503, "503 UNAVAILABLE")
        server.start()
        async with AuditedWrite(context, principal, "r", "container.create", "web") as third:
            third.target = "an-id"
        found = [(row.action, row.target, row.result) for row in await trail.of("acme")]
        assert found == [("container.stop", "web", BEGUN), ("container.create", "an-id", "200")]
    finally:
        await engine.dispose()
