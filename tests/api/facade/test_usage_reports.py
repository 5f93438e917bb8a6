"""Reports of usage at a real facade: signatures, answers, reporters, prices, the check."""

import json
import re
from datetime import timedelta
from typing import Any

import httpx
import pytest
import yaml

from cloister_api.usage.ingest import PATH
from cloister_clients.clock import utc_now
from dev.plain_http import NO_TRUST
from tests.api.facade.test_key_check import becomes, key_of
from tests.api.facade.test_serving import changed
from tests.support.builders.usage import event, report, sign
from tests.support.cluster.clusters import unique
from tests.support.programs.facade import Facade, FacadeInstallation, run_command, start_facade


class Reporter:
    """A reporter that the command made."""

    def __init__(self, world: FacadeInstallation) -> None:
        self.config = ("--config", str(world.settings))
        self.name = unique("router")
        self.secret = run_command("reporter", "create", self.name, *self.config).stdout.strip()

    async def send(
        self,
        client: httpx.AsyncClient,
        events: list[Any],
        nonce: str = "",
        **headers: str,
    ) -> httpx.Response:
        """Send a report."""
        nonce = nonce or unique("d")
        body = report(nonce, events)
        signed = sign(self.secret, nonce, body, utc_now(), self.name)
        shown = {**signed, "content-type": "application/json", **headers}
        return await client.post(PATH, content=body, headers=shown)


@pytest.fixture
def reporter(world: FacadeInstallation) -> Reporter:
    """Return a reporter."""
    return Reporter(world)


@pytest.mark.spec("9.1", "26.7")
@pytest.mark.attack("forged-usage-report")
async def test_a_report_counts_and_its_cap_holds(
    facade: Facade, world: FacadeInstallation, reporter: Reporter
) -> None:
    key = await key_of(facade, world, max_tokens=330)
    name = unique("e")
    events = [event(f"{name}-{n}", utc_now(), api_key=key) for n in range(2)]
    wrong = event(f"{name}-9", utc_now() - timedelta(days=91), api_key=key)
    async with facade.client() as client, facade.client(world.key) as admin:
        answer = await reporter.send(client, [events[0], wrong, events[1], events[1]])
        assert answer.status_code == 200
        body = answer.json()
        assert (body["accepted"], body["duplicates"]) == (2, 1)
        assert [(one["index"], "90 days" in one["reason"]) for one in body["rejected"]] == [
            (1, True)
        ]
        (record,) = (await admin.get("/api/keys")).json()
        assert (record["tokens_used"], record["input_tokens_used"]) == (220, 200)
        assert (record["output_tokens_used"], record["request_count"]) == (20, 2)
        again = await reporter.send(client, events)
        assert again.json() == {"accepted": 0, "duplicates": 2, "rejected": []}
        await reporter.send(client, [event(f"{name}-3", utc_now(), api_key=key)])
        began = utc_now()
        await becomes(client, 402, key)
        assert utc_now() - began < timedelta(seconds=15)
    assert key not in facade.log.read_text()
    assert reporter.secret not in facade.log.read_text()
    checked = run_command("ledger", "check", *reporter.config).stdout
    assert "sums are the sums of events" in checked
    assert f"not counted: 1 of {reporter.name}, last " in checked
    lines = run_command("ledger", "dead-letters", *reporter.config).stdout.splitlines()
    (letter,) = [each for each in map(json.loads, lines) if each["reporter"] == reporter.name]
    assert json.loads(letter["event"])["event_id"] == f"{name}-9"
    assert "90 days" in letter["reason"]
    assert key not in letter["event"]


@pytest.mark.spec("26.9")
@pytest.mark.attack("forged-usage-report")
async def test_what_is_not_signed_right_is_401(
    facade: Facade, world: FacadeInstallation, reporter: Reporter
) -> None:
    events = [event(unique("e"), utc_now())]
    late = (utc_now() - timedelta(minutes=11)).isoformat().replace("+00:00", "Z")
    async with facade.client() as client:
        for headers in (
            {"x-cloister-signature": "0" * 64},
            {"x-cloister-reporter-id": "nobody"},
            {"x-cloister-timestamp": late},
            {"x-cloister-nonce": "other"},
            {"x-cloister-signature": ""},
        ):
            answer = await reporter.send(client, events, **headers)
            assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHORIZED")
        nonce = unique("d")
        assert (await reporter.send(client, events, nonce)).json()["accepted"] == 1
        assert (await reporter.send(client, events, nonce)).json()["duplicates"] == 1
        other = await reporter.send(client, [event(unique("e"), utc_now())], nonce)
        assert (other.status_code, "nonce" in other.json()["error"]) == (401, True)
        run_command("reporter", "revoke", reporter.name, *reporter.config)
        assert (await reporter.send(client, events)).status_code == 401
    listed = run_command("reporter", "list", *reporter.config).stdout
    assert f"{reporter.name}\t" in listed
    assert "revoked" in listed
    assert reporter.secret not in listed
    taken = run_command("reporter", "create", reporter.name, *reporter.config, check=False)
    assert "choose another name" in taken.stderr
    gone = run_command("reporter", "revoke", reporter.name, *reporter.config, check=False)
    assert gone.returncode == 1
    bad = run_command("reporter", "create", "A b", *reporter.config, check=False)
    assert "lowercase letters" in bad.stderr


@pytest.mark.spec("26.7")
async def test_a_malformed_report_is_400(
    facade: Facade, world: FacadeInstallation, reporter: Reporter
) -> None:
    headers = {"content-type": "application/json"}
    async with facade.client() as client:
        for body in (b"{}", b"[", report("other", [])):
            signed = sign(reporter.secret, "d", body, utc_now(), reporter.name)
            answer = await client.post(PATH, content=body, headers={**signed, **headers})
            assert (answer.status_code, answer.json()["code"]) == (400, "BAD_REQUEST")
        many = [event(unique("e"), utc_now())] * 1001
        assert (await reporter.send(client, many)).status_code == 400


@pytest.mark.spec("20.14")
async def test_large_reports_are_taken(
    facade: Facade, world: FacadeInstallation, reporter: Reporter
) -> None:
    note = {"model": "north", "note": "x" * 1500}
    events = [event(unique("e"), utc_now(), attributes=note) for _ in range(1000)]
    async with facade.client() as client:
        assert (await reporter.send(client, events)).json()["accepted"] == 1000


async def test_reports_survive_the_end_of_a_facade(
    world: FacadeInstallation, facade: Facade, reporter: Reporter
) -> None:
    key = await key_of(facade, world)
    events = [event(unique("e"), utc_now(), api_key=key) for _ in range(50)]
    with start_facade(changed(world, "figures", metrics={"port": 0})) as second:
        async with second.client() as client:
            assert (await reporter.send(client, [*events, 5])).status_code == 200
        found = re.search(r"metrics are at (http://\S+)", second.log.read_text())
        assert found
        async with httpx.AsyncClient(timeout=60, verify=NO_TRUST) as scraper:
            figures = (await scraper.get(found[1])).text
        for outcome, count in (("accepted", 50), ("duplicate", 0), ("rejected", 1)):
            labels = f'outcome="{outcome}",reporter="{reporter.name}"'
            assert f"cloister_api_usage_events_total{{{labels}}} {count}.0" in figures
        second.kill()
    async with facade.client() as client, facade.client(world.key) as admin:
        assert (await reporter.send(client, events)).json()["duplicates"] == 50
        (record,) = (await admin.get("/api/keys")).json()
        assert record["request_count"] == 50


async def test_prices_are_imported(
    facade: Facade, world: FacadeInstallation, reporter: Reporter
) -> None:
    price = {"service": "router", "operation": "model_request", "perRequest": 0.25}
    file = world.settings.with_name("prices.yml")
    file.write_text(yaml.safe_dump({"effectiveFrom": "2026-01-01T00:00:00Z", "prices": [price]}))
    done = run_command("prices", "import", str(file), *reporter.config)
    assert "with 1 prices is imported" in done.stdout
    file.write_text(yaml.safe_dump({"prices": [price]}))
    refused = run_command("prices", "import", str(file), *reporter.config, check=False)
    assert (refused.returncode, "effectiveFrom" in refused.stderr) == (1, True)
