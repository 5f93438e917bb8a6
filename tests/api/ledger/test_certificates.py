"""What the ledger has of certificates, and when it goes."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.certificates.limits import longest_window, next_order
from cloister_api.certificates.settings import AcmeLimits, CertificateSettings
from cloister_api.certificates.sweep import CertificateExpiry, CertificateSweep
from cloister_api.ledger.certificates import CertificateOrder, CertificateOrders
from cloister_api.ledger.tables import CERTIFICATE_KEYS, CERTIFICATE_ORDERS

START = datetime(2026, 11, 1, tzinfo=UTC)
DAY = timedelta(days=1)
SETTINGS = CertificateSettings.model_validate(
    {"issuer": "own", "own": {"certificate": "ca.pem", "key": "ca.key"}}
)
LIMITS = AcmeLimits()


async def left(engine: AsyncEngine) -> tuple[set[str], set[str]]:
    """Return the Enclaves with orders, and those with keys."""
    async with engine.connect() as connection:
        orders = await connection.execute(select(CERTIFICATE_ORDERS.c.enclave_uid))
        keys = await connection.execute(select(CERTIFICATE_KEYS.c.enclave_uid))
        return set(orders.scalars()), set(keys.scalars())


async def test_old_orders_and_keys_of_enclaves_that_are_gone_are_swept(engine: AsyncEngine) -> None:
    orders = CertificateOrders(engine)
    for uid, age, certificate in (
        ("gone", 40, "PEM"),
        ("serving", 40, "PEM"),
        ("queued", 40, None),
        ("young", 0, "PEM"),
    ):
        now = START - age * DAY
        await orders.bind_key(uid, "0" * 64, now)
        await orders.add(
            enclave_uid=uid,
            enclave=f"org-acme/{uid}",
            request_digest="0" * 64,
            request="PEM",
            names=("web.example",),
            now=now,
            certificate=certificate,
            not_after=now + DAY if certificate else None,
        )
    unknown = CertificateSweep(SETTINGS, orders, lambda: None, lambda: START)
    await unknown.sweep()
    # Old orders go; while the Enclaves are not known, no key does.
    assert await left(engine) == ({"queued", "young"}, {"gone", "serving", "queued", "young"})
    known = {"serving", "queued"}
    await CertificateSweep(SETTINGS, orders, lambda: known, lambda: START).sweep()
    assert await left(engine) == ({"queued", "young"}, {"serving", "queued", "young"})


async def test_the_first_certificate_of_a_present_enclave_to_expire(engine: AsyncEngine) -> None:
    """A certificate that is valid for longer than orders are kept is still known."""
    orders = CertificateOrders(engine)
    for uid, digest, age, days in (
        ("serving", "0", 60, 90),
        ("renewed", "0", 60, 61),
        ("renewed", "1", 1, 90),
        ("gone", "0", 60, 62),
    ):
        now = START - age * DAY
        await orders.add(
            enclave_uid=uid,
            enclave=f"org-acme/{uid}",
            request_digest=digest * 64,
            request="PEM",
            names=("web.example",),
            now=now,
            certificate="PEM",
            not_after=now + days * DAY,
        )
    existing = {"serving", "renewed", "without"}
    await CertificateSweep(SETTINGS, orders, lambda: existing, lambda: START).sweep()
    expiry = CertificateExpiry(orders, lambda: existing, None)
    await expiry.read()
    assert expiry.earliest == START + 30 * DAY
    assert expiry.failing == 0
    assert expiry.authority is None
    unknown = CertificateExpiry(orders, lambda: None, None)
    await unknown.read()
    assert unknown.earliest is None


async def asks(
    orders: CertificateOrders, organization: str, name: str, now: datetime, *, request: int = 0
) -> None:
    """Queue the order of an enclave."""
    await orders.add(
        enclave_uid=f"{organization}-{name}",
        enclave=f"org-{organization}/{name}",
        request_digest=f"{request:064}",
        request="PEM",
        names=(f"{name}.{organization}.containers.example",),
        now=now,
    )


async def next_sent(orders: CertificateOrders, now: datetime) -> CertificateOrder | None:
    """Have the next order sent and issued; None = none may be sent."""
    order = await orders.take(
        holder="worker",
        now=now,
        hold=timedelta(minutes=1),
        choose=lambda due: next_order(
            LIMITS, due, lambda each: "gone" if "/gone" in each.enclave else "", now
        ),
        window=longest_window(LIMITS),
    )
    if order is not None:
        await orders.note_sent(order, "worker", f"https://acme.example/{order.id}")
        await orders.note_issued(order, "worker", "PEM", now + 90 * DAY)
    return order


async def test_an_organization_that_creates_many_names_keeps_no_other_from_a_certificate(
    engine: AsyncEngine,
) -> None:
    orders = CertificateOrders(engine)
    now, evil = START, 0
    for n in range(45):
        now += timedelta(seconds=10)
        await asks(orders, "evil", f"web-{n}", now)
        evil += await next_sent(orders, now) is not None
    assert evil == 9
    await asks(orders, "good", "web", now)
    sent = await next_sent(orders, now)
    assert sent is not None
    assert sent.enclave == "org-good/web"
    waiting = await orders.find("evil-web-44", "0" * 64)
    assert waiting is not None
    assert waiting.due_at == START + timedelta(seconds=10) + 7 * DAY
    assert "until 2026-11-08T00:00:10Z: this organization has used its share" in waiting.message


async def test_renewals_are_sent_when_new_orders_have_used_their_part(engine: AsyncEngine) -> None:
    orders = CertificateOrders(engine)
    await asks(orders, "old", "web", START)
    assert await next_sent(orders, START) is not None
    now = START + 60 * DAY
    for n in range(60):
        now += timedelta(seconds=10)
        await asks(orders, f"new-{n}", "web", now)
    sent = 0
    while await next_sent(orders, now) is not None:
        sent += 1
    assert sent == 36
    await asks(orders, "old", "web", now, request=1)
    renewal = await next_sent(orders, now)
    assert renewal is not None
    assert renewal.enclave == "org-old/web"


async def test_an_order_that_nobody_needs_any_more_uses_no_share(engine: AsyncEngine) -> None:
    orders = CertificateOrders(engine)
    for n in range(20):
        await asks(orders, "acme", f"gone-{n}", START)
    await asks(orders, "acme", "web", START + timedelta(seconds=1))
    sent = await next_sent(orders, START + timedelta(seconds=1))
    assert sent is not None
    assert sent.enclave == "org-acme/web"
    refused = await orders.find("acme-gone-0", "0" * 64)
    assert refused is not None
    assert (refused.state, refused.message) == ("refused", "gone")
