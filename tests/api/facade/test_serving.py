"""What administrators see of a facade: rate limits, metrics, access log, graceful shutdown."""

import asyncio
import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from dev.cluster.binaries import binary
from dev.plain_http import NO_TRUST
from tests.support.programs.facade import Facade, FacadeInstallation, start_facade
from tests.support.waiting import until, until_sync

LIMITED = re.compile(r'^"key";r=(\d+);t=(\d+)$')


def changed(world: FacadeInstallation, name: str, **more: Any) -> Path:
    """Write settings of a facade of the test's own."""
    document = yaml.safe_load(world.settings.read_text())
    path = world.settings.with_name(f"{world.organization}-{name}.yml")
    path.write_text(yaml.safe_dump({**document, **more}))
    return path


def port_of(facade: Facade) -> int:
    """Return the port of a facade."""
    return int(facade.base.rpartition(":")[2])


@pytest.mark.spec("20.9", "20.20")
async def test_a_key_that_is_used_too_often_waits(world: FacadeInstallation) -> None:
    # A ledger of its own, because facades on one ledger share the rate.
    ledger = {"path": f"{world.organization}.db", "keyMaterial": "keys.json"}
    rate = {"ratePerSecond": 0.01, "burst": 3}
    world.settings = changed(world, "rate", adminKeys=rate, ledger=ledger)
    with start_facade(world.settings) as facade:
        async with facade.client(await world.new_key()) as client:
            answers = [await client.get("/api/containers") for _ in range(4)]
            assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
            left = [LIMITED.match(answer.headers["ratelimit"]) for answer in answers]
            assert [int(found[1]) for found in left if found] == [2, 1, 0, 0]
            assert answers[0].headers["ratelimit-policy"] == '"key";q=3;w=300'
            assert 1 <= int(answers[3].headers["retry-after"]) <= 100
            assert answers[3].json()["code"] == "RATE_LIMITED"
        async with facade.client(await world.new_key()) as client:
            assert (await client.get("/api/containers")).status_code == 200

            async def again() -> bool:
                return (await client.get("/readyz")).status_code == 200

            await until(again)


@pytest.mark.spec("20.20")
async def test_an_organization_that_writes_too_often_waits_and_goes_on_reading(
    world: FacadeInstallation,
) -> None:
    ledger = {"path": f"{world.organization}-writes.db", "keyMaterial": "keys.json"}
    limits = {"organizationWritesPerSecond": 0.01, "organizationWriteBurst": 2}
    world.settings = changed(world, "writes", limits=limits, ledger=ledger)
    with start_facade(world.settings) as facade:
        async with (
            facade.client(await world.new_key()) as one,
            facade.client(await world.new_key()) as other,
        ):
            for name, client in (("ONE", one), ("TWO", other)):
                made = await client.post("/api/secrets", json={"name": name, "value": "x"})
                assert made.status_code == 201, made.text
            assert made.headers["ratelimit-policy"] == '"writes";q=2;w=200'
            refused = await one.post("/api/secrets", json={"name": "THREE", "value": "x"})
            assert (refused.status_code, refused.json()["code"]) == (429, "RATE_LIMITED")
            assert 1 <= int(refused.headers["retry-after"]) <= 100
            assert refused.headers["ratelimit"].startswith('"writes";r=0;t=')
            listed = await one.get("/api/secrets")
            assert listed.status_code == 200
            assert [each["name"] for each in listed.json()] == ["ONE", "TWO"]


async def test_metrics_have_a_port_of_their_own_and_the_access_log_names_requests(
    world: FacadeInstallation,
) -> None:
    with start_facade(changed(world, "figures", metrics={"port": 0})) as facade:
        found = re.search(r"metrics are at (http://\S+)", facade.log.read_text())
        assert found
        async with facade.client(world.key) as client:
            headers = {"X-Request-Id": "a-request-of-mine"}
            made = await client.post("/api/containers", json=world.body("web"), headers=headers)
            assert made.status_code == 201, made.text
            assert (await client.get("/api/no/such/path")).status_code == 404
            assert (await client.delete("/api/keys/tk_made-up-value")).status_code == 404
            assert (await client.get("/metrics")).status_code == 404
        async with httpx.AsyncClient(timeout=60, verify=NO_TRUST) as scraper:
            figures = (await scraper.get(found[1])).text
        counted = 'cloister_api_requests_total{method="POST",route="/api/containers",status="201"}'
        assert f"{counted} 1.0" in figures
        assert 'route="/api/keys/{key}",status="404"} 1.0' in figures
        assert 'cloister_api_copy_ready{kind="Container"} 1.0' in figures
        assert "cloister_api_request_seconds_bucket" in figures
        written = facade.log.read_text()
        line = next(one for one in written.splitlines() if "[a-request-of-mine]" in one)
        assert "POST /api/containers 201" in line
        assert world.organization in line
        assert "tk_made-up-value" not in written
        assert world.key not in written
    (row,) = [row for row in await world.audit() if row.action == "container.create"]
    assert row.request_id == "a-request-of-mine"


@contextlib.contextmanager
def balancer(folder: Path, ports: list[int]) -> Iterator[str]:
    """Run Caddy in front of two facades; it asks each twice a second whether it is ready."""
    config = folder / "Caddyfile"
    upstreams = " ".join(f"127.0.0.1:{port}" for port in ports)
    address = folder / "balancer.sock"
    config.write_text(
        f"{{\n admin off\n auto_https off\n}}\nhttp:// {{\n bind unix/{address}\n"
        f" reverse_proxy {upstreams} {{\n  lb_policy round_robin\n  lb_try_duration 5s\n"
        "  health_uri /readyz\n  health_interval 500ms\n  health_timeout 5s\n }\n}\n"
    )
    with (folder / "caddy.log").open("wb") as log:
        process = subprocess.Popen(
            [str(binary("caddy")), "run", "--config", str(config), "--adapter", "caddyfile"],
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
    try:
        until_sync(address.exists, within=60, what="Caddy to listen")
        yield str(address)
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.programs("caddy")
async def test_a_rolling_restart_of_two_replicas_loses_no_request(
    world: FacadeInstallation, tmp_path: Path
) -> None:
    unlimited = {"organizationWritesPerSecond": None}
    draining = changed(world, "draining", stop={"drainSeconds": 3}, limits=unlimited)
    await world.change_organization(limits={"secrets": 10_000})
    answered: list[int] = []
    stop = asyncio.Event()

    async def keep_asking(client: httpx.AsyncClient, part: int) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            made = await client.post(
                "/api/secrets", json={"name": f"s-{part}-{number}", "value": "made-up"}
            )
            got = await client.get("/api/containers")
            answered.extend((made.status_code, got.status_code))

    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(start_facade(draining)) for _ in range(2)]
        ports = [port_of(one) for one in running]
        path = stack.enter_context(balancer(tmp_path, ports))
        transport = httpx.AsyncHTTPTransport(uds=path)
        headers = {"Authorization": f"Bearer {world.key}"}
        async with httpx.AsyncClient(
            transport=transport, base_url="http://facade", headers=headers, timeout=60
        ) as client:
            asking = [asyncio.create_task(keep_asking(client, part)) for part in range(3)]
            for place, port in enumerate(ports):
                before = len(answered)
                assert await asyncio.to_thread(running[place].stop) == 0
                document = yaml.safe_load(draining.read_text())
                document["listen"] = {"port": port}
                again = draining.with_name(f"{draining.stem}-{place}.yml")
                again.write_text(yaml.safe_dump(document))
                following = start_facade(again)
                stack.push(following.__exit__)
                await asyncio.to_thread(following.__enter__)

                async def went_on(since: int = before) -> bool:
                    return len(answered) > since + 30 or any(one.done() for one in asking)

                await until(went_on, within=60)
            stop.set()
            await asyncio.gather(*asking)
    assert len(answered) > 60
    assert set(answered) == {200, 201}, sorted(set(answered))


async def test_graceful_shutdown_is_not_ready_before_it_refuses_requests(
    world: FacadeInstallation,
) -> None:
    with start_facade(changed(world, "ends", stop={"drainSeconds": 6})) as facade:
        async with facade.client(world.key) as client:
            assert (await client.get("/readyz")).status_code == 200
            ending = asyncio.create_task(asyncio.to_thread(facade.stop))

            async def told() -> bool:
                return (await client.get("/readyz")).status_code == 503

            await until(told, every=0.02)
            served = await client.get("/api/containers")
            assert (served.status_code, served.headers["connection"]) == (200, "close")
            assert (await client.get("/healthz")).status_code == 200
            assert await ending == 0
