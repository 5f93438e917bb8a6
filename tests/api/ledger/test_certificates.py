"""What the ledger has of certificates, and when it goes."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.certificates.expiry import CertificateExpiry
from cloister_api.certificates.settings import CertificateSettings
from cloister_api.certificates.sweep import CertificateSweep
from cloister_api.ledger.certificates import CertificateOrders
from cloister_api.ledger.tables.core import CERTIFICATE_KEYS, CERTIFICATE_ORDERS

START = datetime(2026, 11, 1, tzinfo=UTC)
DAY = timedelta(days=1)
SETTINGS = CertificateSettings.model_validate(
    {"issuer": "own", "own": {"certificate": "ca.pem", "key": "ca.key"}}
)


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
