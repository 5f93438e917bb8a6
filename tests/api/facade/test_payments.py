"""Stripe at a real facade: transactions, and subscriptions notified by webhooks.

Stripe is a stand-in on a socket (`tests.support.stand_ins.stripe`); all else is real.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Organization
from tests.api.facade.test_key_check import becomes
from tests.support.programs.facade import Facade, FacadeInstallation, run_command, start_facade
from tests.support.stand_ins.http_server import Reply
from tests.support.stand_ins.stripe import Stripe, stripe_stand_in
from tests.support.waiting import until

CONTAINERS, TOKENS = "prod_containers", "prod_tokens"
HISTORY = "/api/billing/transactions"


@pytest.fixture(scope="module")
def running_stripe() -> Iterator[Stripe]:
    """Return a running Stripe."""
    with stripe_stand_in() as account:
        yield account


@pytest.fixture
def stripe(running_stripe: Stripe) -> Iterator[Stripe]:
    """Return Stripe, well again after each test."""
    yield running_stripe
    running_stripe.fault = None
    running_stripe.go_on.set()


@pytest.fixture(scope="module")
def paying_settings(facade_settings: Path, running_stripe: Stripe) -> Path:
    """Return the settings of a facade that asks Stripe."""
    folder = facade_settings.parent
    (folder / "stripe-key").write_text(f"{running_stripe.key}\n")
    (folder / "stripe-webhooks").write_text(running_stripe.webhook_secret)
    settings = yaml.safe_load(facade_settings.read_text())
    settings["stripe"] = {
        "secretKeyFile": "stripe-key",
        "webhookSecretFile": "stripe-webhooks",
        "containerProducts": [CONTAINERS],
        "tokenProducts": [TOKENS],
        "apiAddress": running_stripe.base,
        # One test waits for it; in all others it would be the machine's fault.
        "timeoutSeconds": 10,
    }
    path = folder / "paying.yml"
    path.write_text(yaml.safe_dump(settings))
    return path


@pytest.fixture(scope="module")
def paying(paying_settings: Path) -> Iterator[Facade]:
    """Return a facade that asks Stripe."""
    with start_facade(paying_settings) as running:
        yield running


@pytest.fixture
async def client(paying: Facade, world: FacadeInstallation) -> AsyncIterator[httpx.AsyncClient]:
    """Return a client of an administrator of the organization."""
    async with paying.client(world.key) as made:
        yield made


@pytest.fixture
async def customer(stripe: Stripe, world: FacadeInstallation, client: httpx.AsyncClient) -> str:
    """Return the organization's customer, whom the facade has synced: there is no subscription."""
    name = stripe.customer()
    await world.change_organization(
        billing={"customerID": name, "containerSubscription": True, "tokenBilling": True}
    )
    await tells(world, customer=name)

    async def looked() -> bool:
        # What was written is compared with Stripe once more; then the sync is done.
        requests = stripe.customer_requests(name)
        looks = [each for each in requests if each.path == "/v1/subscriptions"]
        return len(looks) >= 2

    await until(looked, what="the end of the first look")

    async def unpaid() -> bool:
        found = (await client.get("/api/organization")).json()["billing"]
        paid = found["container_subscription"] or found["token_billing"]
        return bool(found["by_processor"] and not paid)

    await until(unpaid, what="the end of the subscriptions in the facade's cache")
    await shows(client, [])
    return name


async def tells(
    world: FacadeInstallation, *, customer: str, containers: bool = False, tokens: bool = False
) -> None:
    """Wait until an Organization's status says what is paid for."""
    told = {"containerSubscription": containers, "tokenBilling": tokens, "customerID": customer}

    async def so() -> bool:
        found = await world.kube.get(of(Organization), world.organization)
        return bool(found["status"].get("billing") == told)

    await until(so, what=f"status.billing {told}")


async def shows(client: httpx.AsyncClient, want: list[dict[str, Any]]) -> None:
    """Wait until the history is what it is to be."""

    async def so() -> bool:
        answer = await client.get(HISTORY)
        return (answer.status_code, answer.json()) == (200, {"transactions": want})

    await until(so, what="the history")


def record(found: dict[str, Any], amount: float, description: str, status: str) -> dict[str, Any]:
    """Return the transaction that is expected of an object of Stripe."""
    kind = "Invoice" if found["object"] == "invoice" else "Charge"
    minutes, seconds = divmod(found["created"] - 1_800_000_000, 60)
    made = {
        "id": found["id"],
        "date": f"2027-01-15T08:{minutes:02}:{seconds:02}Z",
        "type": kind,
        "description": description,
        "amount": amount,
        "status": status,
    }
    return made | ({"invoice_url": found["hosted_invoice_url"]} if kind == "Invoice" else {})


@pytest.mark.spec("10.7", "27.8")
async def test_invoices_and_charges_are_one_history(
    stripe: Stripe, client: httpx.AsyncClient, customer: str
) -> None:
    stripe.charge(stripe.customer(), description="somebody else's")
    paid = stripe.invoice(customer)
    for _ in range(3):
        stripe.pay(paid, status="failed")
    stripe.pay(paid)
    one_off = stripe.charge(customer, 1234, description="Credits")
    yen = stripe.charge(customer, 1999, currency="jpy")
    dinar = stripe.charge(customer, 5120, currency="kwd", status="failed")
    waiting = stripe.invoice(customer, 500, description="March")
    stripe.invoice(customer, status="draft", number=None, hosted_invoice_url=None)
    void = stripe.invoice(customer, 700, status="void", number=None, hosted_invoice_url=None)
    held = stripe.charge(customer, 10, captured=False)
    given_back = stripe.invoice(customer, 2000)
    stripe.refund(stripe.pay(given_back, payment_intent=None), 2000)
    partly = stripe.charge(customer, 300)
    stripe.refund(partly, 100)
    want = [
        record(partly, 3.0, "Charge", "partially_refunded"),
        record(given_back, 20.0, f"Invoice {given_back['number']}", "refunded"),
        record(held, 0.1, "Charge", "pending"),
        record(void, 7.0, "Invoice", "void") | {"invoice_url": ""},
        record(waiting, 5.0, "March", "open"),
        record(dinar, 5.12, "Charge", "failed"),
        record(yen, 1999, "Charge", "completed"),
        record(one_off, 12.34, "Credits", "completed"),
        record(paid, 19.99, f"Invoice {paid['number']}", "completed"),
    ]
    answer = await client.get(HISTORY)
    assert (answer.status_code, answer.json()) == (200, {"transactions": want})
    assert "1999," in answer.text, "a currency without a smaller unit has whole numbers"


async def test_every_page_is_read(stripe: Stripe, client: httpx.AsyncClient, customer: str) -> None:
    invoices = [stripe.invoice(customer) for _ in range(130)]
    for invoice in invoices:
        stripe.pay(invoice)
    alone = [stripe.charge(customer) for _ in range(80)]
    found = (await client.get(HISTORY)).json()["transactions"]
    assert [each["id"] for each in found] == [each["id"] for each in reversed(invoices + alone)]


@pytest.mark.spec("10.6")
async def test_only_administrators_see_the_history(
    paying: Facade,
    stripe: Stripe,
    world: FacadeInstallation,
    client: httpx.AsyncClient,
    customer: str,
) -> None:
    stripe.charge(customer)
    assert len((await client.get(HISTORY)).json()["transactions"]) == 1
    async with paying.client() as nobody:
        assert (await nobody.get(HISTORY)).status_code == 401
    await world.change_organization(members=[{"user": "ada@example.test", "role": "Member"}])

    async def refused() -> bool:
        return (await client.get(HISTORY)).status_code == 403

    await until(refused)


@pytest.mark.parametrize(
    ("fault", "status", "code", "words"),
    [
        (Reply(500, b"<html>"), 503, "UNAVAILABLE", "does not respond"),
        (Reply(429, b'{"error": {"message": "slow down"}}'), 503, "UNAVAILABLE", "try again"),
        (
            Reply(401, b'{"error": {"message": "Invalid API Key provided: rk_made"}}'),
            502,
            "BAD_GATEWAY",
            "log of the facade",
        ),
        (Reply(200, b"<html>"), 502, "BAD_GATEWAY", "could not be understood"),
        (
            Reply(200, b'{"object": "list", "has_more": false, "data": [{"object": "charge"}]}'),
            502,
            "BAD_GATEWAY",
            "could not be understood",
        ),
    ],
)
async def test_errors_of_stripe_are_reported(
    stripe: Stripe,
    client: httpx.AsyncClient,
    customer: str,
    fault: Reply,
    status: int,
    code: str,
    words: str,
) -> None:
    stripe.fault = fault
    answer = await client.get(HISTORY)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert words in answer.json()["error"]
    assert answer.json()["request_id"] == answer.headers["x-request-id"]
    assert ("retry-after" in answer.headers) == (status == 503)
    stripe.fault = None
    await shows(client, [])


async def test_a_stripe_that_hangs_is_503_in_time(
    stripe: Stripe, client: httpx.AsyncClient, customer: str
) -> None:
    stripe.go_on.clear()
    answer = await client.get(HISTORY)
    assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")
    assert answer.elapsed.total_seconds() < 30
    stripe.go_on.set()
    await shows(client, [])


async def test_a_customer_that_stripe_does_not_have_is_named(
    world: FacadeInstallation, client: httpx.AsyncClient
) -> None:
    await world.change_organization(billing={"customerID": "cus_gone"})

    async def named() -> bool:
        answer = await client.get(HISTORY)
        return answer.status_code == 502 and "no customer cus_gone" in answer.json()["error"]

    await until(named)
    found = await world.kube.get(of(Organization), world.organization)
    assert "billing" not in found["status"], "what is not known is not written"


async def test_webhooks_switch_billing_on_and_off(
    stripe: Stripe, world: FacadeInstallation, client: httpx.AsyncClient, customer: str
) -> None:
    body, key = world.body("web"), {"name": "ci"}
    for path, asked in (("/api/containers", body), ("/api/keys", key)):
        answer = await client.post(path, json=asked)
        assert (answer.status_code, answer.json()["code"]) == (402, "PAYMENT_REQUIRED")
    subscription = stripe.subscribe(customer, CONTAINERS, TOKENS)
    created = stripe.event("customer.subscription.created", subscription)
    answer = await stripe.deliver(client, created)
    assert (answer.status_code, answer.json()) == (200, {"organizations": 1}), answer.text
    await tells(world, customer=customer, containers=True, tokens=True)
    made, value = await paid_for(client, body, key)
    await becomes(client, 200, value)

    subscription["status"] = "past_due"
    late = stripe.event("customer.subscription.updated", dict(subscription))
    assert (await stripe.deliver(client, late)).status_code == 200
    await tells(world, customer=customer, containers=True, tokens=True)

    subscription["status"] = "canceled"
    ended = stripe.event("customer.subscription.deleted", dict(subscription))
    assert (await stripe.deliver(client, ended)).status_code == 200
    await tells(world, customer=customer)
    await becomes(client, 402, value)
    # What is there stays; what would be new is refused.
    found = await world.container("web")
    assert found is not None
    assert found["spec"]["state"] == "Running"
    assert (await client.get(made)).status_code == 200
    answer = await client.post(f"{made}/relaunch", json={})
    assert (answer.status_code, answer.json()["code"]) == (402, "PAYMENT_REQUIRED")
    # Events that come again, or after later ones, change nothing.
    for old in (created, late, created):
        assert (await stripe.deliver(client, old)).json() == {"organizations": 1}
    await tells(world, customer=customer)
    rows = [row for row in await world.audit() if row.action == "billing.change"]
    assert [(row.actor, row.target, row.result) for row in rows] == [
        ("Stripe", customer, "200")
    ] * 3


async def paid_for(
    client: httpx.AsyncClient, body: dict[str, Any], key: dict[str, Any]
) -> tuple[str, str]:
    """Create a container and a key once the facade's cache shows that they are paid for."""

    async def created(path: str, asked: dict[str, Any]) -> httpx.Response | None:
        answer = await client.post(path, json=asked)
        assert answer.status_code in {200, 201, 402}, answer.text
        return None if answer.status_code == 402 else answer

    container = await until(lambda: created("/api/containers", body))
    made = await until(lambda: created("/api/keys", key))
    assert container is not None
    assert made is not None
    return str(container.headers["location"]), str(made.json()["key"])


async def test_products_tell_what_is_paid_for(
    stripe: Stripe, world: FacadeInstallation, client: httpx.AsyncClient, customer: str
) -> None:
    stripe.subscribe(customer, "prod_other", TOKENS, status="trialing")
    unpaid = stripe.subscribe(customer, CONTAINERS, status="unpaid")
    await stripe.deliver(client, stripe.event("customer.subscription.updated", unpaid))
    await tells(world, customer=customer, tokens=True)


async def test_changes_at_the_same_time_end_with_the_last(
    stripe: Stripe, world: FacadeInstallation, client: httpx.AsyncClient, customer: str
) -> None:
    subscription = stripe.subscribe(customer, CONTAINERS)
    told = stripe.event("customer.subscription.updated", subscription)

    async def deliver(status: str) -> int:
        subscription["status"] = status
        return (await stripe.deliver(client, told)).status_code

    statuses = ["canceled", "active", "unpaid", "active", "canceled", "active"]
    codes = await asyncio.gather(*(deliver(status) for status in statuses))
    assert set(codes) == {200}
    await tells(world, customer=customer, containers=True)


async def test_other_events_and_other_customers_are_ignored(
    stripe: Stripe, world: FacadeInstallation, client: httpx.AsyncClient, customer: str
) -> None:
    stripe.subscribe(customer, CONTAINERS)
    stranger = stripe.customer()
    other = stripe.subscribe(stranger, CONTAINERS)
    asked = stripe.customer_requests(customer, stranger)
    thin = json.dumps({"object": "v2.core.event", "type": "v1.billing.meter.no_meter_found"})
    for body in (
        stripe.event("invoice.paid", {"id": "in_1", "object": "invoice", "customer": customer}),
        stripe.event("something.new", {"shape": "unknown"}),
        stripe.event("customer.subscription.created", other),
        thin.encode(),
    ):
        answer = await stripe.deliver(client, body)
        assert (answer.status_code, answer.json()) == (200, {"organizations": 0})
    assert stripe.customer_requests(customer, stranger) == asked
    await tells(world, customer=customer)


async def test_a_deleted_customer_pays_for_nothing(
    stripe: Stripe, world: FacadeInstallation, client: httpx.AsyncClient, customer: str
) -> None:
    subscription = stripe.subscribe(customer, CONTAINERS)
    await stripe.deliver(client, stripe.event("customer.subscription.created", subscription))
    await tells(world, customer=customer, containers=True)
    subscription["status"] = "canceled"
    gone = {"id": customer, "object": "customer", "deleted": True}
    answer = await stripe.deliver(client, stripe.event("customer.deleted", gone))
    assert answer.json() == {"organizations": 1}
    await tells(world, customer=customer)


async def test_webhooks_that_stripe_did_not_sign_are_refused(
    stripe: Stripe, client: httpx.AsyncClient, customer: str
) -> None:
    body = stripe.event("customer.subscription.created", stripe.subscribe(customer, CONTAINERS))
    good = stripe.signature(body)
    for signature in (
        "none",
        "t=soon,v1=0",
        stripe.signature(body, secret="whsec_another"),
        stripe.signature(body, age=310),
        stripe.signature(body + b" "),
        good.replace("v1=", "v2="),
        re.sub(r"t=\d+", "t=1", good),
    ):
        answer = await stripe.deliver(client, body, signature)
        assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHORIZED"), signature
        assert "stripe.webhookSecretFile" in answer.json()["error"]
    json_type = {"content-type": "application/json"}
    strange = {**json_type, "stripe-signature": "t=1,v1=é"}
    for headers in (json_type, strange):
        answer = await client.post(
            "/api/webhooks/stripe", content=body, headers=httpx.Headers(headers, "latin-1")
        )
        assert answer.status_code == 401, answer.text
    for broken in (b"[]", b"{", b'{"type": "customer.deleted"}'):
        answer = await stripe.deliver(client, broken)
        assert (answer.status_code, answer.json()["code"]) == (400, "BAD_REQUEST")
    assert (await stripe.deliver(client, b"\xff", good)).status_code == 401
    large = await stripe.deliver(client, b'{"type": "x", "data": "' + b"a" * 2**20 + b'"}')
    assert (large.status_code, large.json()["code"]) == (413, "PAYLOAD_TOO_LARGE")


async def test_a_webhook_is_not_acknowledged_while_stripe_is_unreachable(
    stripe: Stripe, world: FacadeInstallation, client: httpx.AsyncClient, customer: str
) -> None:
    subscription = stripe.subscribe(customer, CONTAINERS)
    body = stripe.event("customer.subscription.created", subscription)
    stripe.fault = Reply(503, b"")
    answer = await stripe.deliver(client, body)
    assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")
    await tells(world, customer=customer)
    stripe.fault = None
    assert (await stripe.deliver(client, body)).status_code == 200
    await tells(world, customer=customer, containers=True)


@pytest.fixture
def looking_settings(paying_settings: Path) -> Path:
    """Return the settings of a facade that accepts no webhooks and refreshes every second."""
    settings = yaml.safe_load(paying_settings.read_text())
    del settings["stripe"]["webhookSecretFile"]
    settings["stripe"]["refreshSeconds"] = 1
    path = paying_settings.with_name("looking.yml")
    path.write_text(yaml.safe_dump(settings))
    return path


async def test_without_webhooks_what_changed_is_seen_at_the_next_look(
    paying: Facade, looking_settings: Path, stripe: Stripe, world: FacadeInstallation
) -> None:
    customer = stripe.customer()
    subscription = stripe.subscribe(customer, TOKENS)
    await world.change_organization(billing={"customerID": customer})
    with start_facade(looking_settings) as looking:
        await tells(world, customer=customer, tokens=True)
        async with looking.client() as client:
            refused = await stripe.deliver(client, stripe.event("customer.deleted", {"id": "x"}))
            assert (refused.status_code, refused.json()["code"]) == (404, "NOT_FOUND")
        subscription["status"] = "unpaid"
        await tells(world, customer=customer)
    for log in (looking.log, paying.log):
        text = log.read_text()
        assert stripe.key not in text
        assert stripe.webhook_secret not in text
        assert "rk_made" not in text


def test_an_unusable_secret_is_reported_at_the_start(paying_settings: Path, stripe: Stripe) -> None:
    settings = yaml.safe_load(paying_settings.read_text())
    settings["stripe"]["secretKeyFile"] = settings["stripe"]["webhookSecretFile"]
    path = paying_settings.with_name("wrong.yml")
    path.write_text(yaml.safe_dump(settings))
    done = run_command("api", "--config", str(path), check=False)
    assert done.returncode == 1
    assert "stripe.secretKeyFile" in done.stderr
    assert stripe.webhook_secret not in done.stderr
