"""Usage as administrators ask for it, at a real facade."""

import uuid

import pytest

from cloister_api.ledger.keys.key_material import REGULAR_PREFIX, generate
from cloister_api.metering.store import SECONDS, MeteringStore, ServedEnclave
from cloister_clients.clock import utc_now
from tests.api.facade.test_key_check import key_of
from tests.api.facade.test_usage_reports import Reporter
from tests.support.builders.usage import event
from tests.support.cluster.clusters import unique
from tests.support.programs.facade import Facade, FacadeInstallation
from tests.support.waiting import until


@pytest.mark.spec("10.2", "10.3", "27.1", "27.2", "27.6", "27.7")
async def test_usage_is_visible_at_once_in_every_form(
    facade: Facade, world: FacadeInstallation, other_world: FacadeInstallation
) -> None:
    key = await key_of(facade, world)
    reporter = Reporter(world)
    events = [event(unique("e"), utc_now(), api_key=key) for _ in range(3)]
    async with facade.client(world.key) as client, facade.client(other_world.key) as other:
        assert (await reporter.send(client, events)).json()["accepted"] == 3
        for query in ("", "?time=5m", "?time=90d"):
            found = (await client.get(f"/api/billing/usage{query}")).json()
            assert (found["tokens"], found["requests"]) == (330, 3)
            assert list(found) == [
                *("tokens", "input_tokens", "output_tokens", "requests", "cost", "keys")
            ]
            own = found["keys"]["ci"]
            assert (own["total_tokens"], own["models"]["north"]["input_tokens"]) == (330, 300)
            one = await client.post(f"/api/billing/usage/key{query}", json={"key": key})
            assert one.json() == {
                "prompt_tokens": 300,
                "completion_tokens": 30,
                "requests": 3,
                "cost": found["cost"],
            }
        series = (await client.get("/api/billing/time-series?time=24h")).json()
        assert (series["interval"], len(series["data_points"])) == ("15m0s", 96)
        assert sum(point["requests"] for point in series["data_points"]) == 3
        for by, group in (
            ("key", {"key": "ci"}),
            ("model", {"model": "north"}),
            ("key,model", {"key": "ci", "model": "north"}),
        ):
            asked = {"time": "24h", "by": by}
            parts = (await client.get("/api/billing/breakdown", params=asked)).json()
            assert (parts["interval"], len(parts["data_points"])) == ("15m0s", 96)
            shown = [each for point in parts["data_points"] for each in point["groups"]]
            assert group.items() <= shown[0].items()
            assert sum(each["tokens"] for each in shown) == 330
            foreign = (await other.get("/api/billing/breakdown", params=asked)).json()
            assert not any(point["groups"] for point in foreign["data_points"])
        assert (await other.get("/api/billing/usage")).json()["tokens"] == 0
        assert (await other.post("/api/billing/usage/key", json={"key": key})).status_code == 404
        masked = key[:8] + "*" * 24
        for value in (masked, generate(REGULAR_PREFIX), world.key):
            answer = await client.post("/api/billing/usage/key", json={"key": value})
            assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
        assert (await client.delete(f"/api/keys/{key}")).status_code == 200
        gone = await client.post("/api/billing/usage/key", json={"key": key})
        assert gone.status_code == 404
        assert (await client.get("/api/billing/usage")).json()["keys"]["ci"]["total_requests"] == 3


@pytest.mark.spec("10.1", "27.6")
@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/api/billing/time-series", "Missing"),
        ("/api/billing/time-series?time=2h", "Invalid"),
        ("/api/billing/breakdown", "Missing"),
        ("/api/billing/breakdown?time=2h", "Invalid"),
        ("/api/billing/runtime?time=2h", "Invalid"),
        ("/api/billing/usage?time=", "Invalid"),
        ("/api/billing/usage?time=1y", "Invalid"),
    ],
)
async def test_a_window_that_there_is_not_is_400(
    facade: Facade, world: FacadeInstallation, path: str, code: str
) -> None:
    async with facade.client(world.key) as client:
        answer = await client.get(path)
    assert (answer.status_code, answer.json()["code"]) == (400, "BAD_REQUEST")
    assert answer.json()["details"][0]["field"] == "time"
    assert answer.json()["details"][0]["code"] == code
    assert "5m, 15m, 30m, 1h, 24h, 7d, 30d, 60d, 90d" in answer.json()["error"]


@pytest.mark.spec("10.6")
async def test_without_a_customer_there_are_no_transactions(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        answer = await client.get("/api/billing/transactions")
        assert (answer.status_code, answer.json()) == (200, {"transactions": []})
        await world.change_organization(billing={"customerID": "cus_1"})

        async def refused() -> bool:
            told = await client.get("/api/billing/transactions")
            return (
                told.status_code == 503
                and told.json()["code"] == "UNAVAILABLE"
                and "sets stripe in the settings" in told.json()["error"]
            )

        await until(refused)


async def test_what_usage_cannot_be_grouped_by_is_named(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        answer = await client.get("/api/billing/breakdown?time=5m&by=user")
        assert answer.status_code == 400
        assert answer.json()["details"][0]["field"] == "by"


async def test_run_time_is_that_of_the_organization_and_says_whether_it_is_metered(
    facade: Facade, world: FacadeInstallation, other_world: FacadeInstallation
) -> None:
    organization = (await world.record_of(world.key)).organization_id
    now = int(utc_now().timestamp())
    end = now // SECONDS * SECONDS * 1_000_000
    hour, container = 3600 * 1_000_000, str(uuid.uuid4())
    uids = [str(uuid.uuid4()) for _ in range(2)]
    served = [
        ServedEnclave(uids[0], organization, container, "web", 2, 8192, 1, end - hour, end),
        ServedEnclave(
            uids[1], organization, container, "web", 2, 8192, 1, end - 49 * hour, end - 48 * hour
        ),
    ]
    async with world.ledger() as engine:
        await MeteringStore(engine).meter(served, now * 1_000_000)
    record = {
        "container_id": container,
        "name": "web",
        "cpus": 2,
        "memory_mb": 8192,
        "gpus": 1,
        "seconds": 7200.0,
    }
    async with facade.client(world.key) as client, facade.client(other_world.key) as other:
        whole = (await client.get("/api/billing/runtime")).json()
        assert whole == {"metering": False, "containers": [record]}
        day = (await client.get("/api/billing/runtime?time=24h")).json()
        assert day["containers"] == [{**record, "seconds": 3600.0}]
        assert (await other.get("/api/billing/runtime")).json()["containers"] == []
