"""Orders of certificates in the ledger: what a restart or a second replica finds again.

Written by `cloister_api.services.certificates` (new ones) and by the queue of the ACME account
(what becomes of them).
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Self

from sqlalchemy import RowMapping, delete, insert, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.ledger.tables.core import (
    CERTIFICATE_ORDERS,
    CERTIFICATE_SUBMISSIONS,
    CERTIFICATE_TURNS,
)

__all__ = ["CertificateOrder", "CertificateOrders", "OrderState", "Submission"]

ORDERS, SUBMISSIONS = CERTIFICATE_ORDERS, CERTIFICATE_SUBMISSIONS


class OrderState(StrEnum):
    """How far an order is."""

    QUEUED = "queued"
    """It waits, or somebody works on it."""
    ISSUED = "issued"
    """The certificate is there."""
    REFUSED = "refused"
    """The authority will not sign it, or nobody wants it any more."""


@dataclass(frozen=True, slots=True)
class Submission:
    """An order that was sent to the authority."""

    at: datetime
    """When, in UTC."""
    names: tuple[str, ...]
    """Host names that it was for, sorted."""


@dataclass(frozen=True, slots=True)
class CertificateOrder:
    """An order."""

    id: str
    """Identifier of the row."""
    enclave_uid: str
    """uid of the Enclave that asked."""
    enclave: str
    """Its namespace and name, for people."""
    request_digest: str
    """SHA-256 of the request in hexadecimal."""
    request: str = field(repr=False)
    """The request, PEM."""
    names: tuple[str, ...]
    """Host names that it is for, sorted."""
    state: OrderState
    """How far it is."""
    message: str
    """What went wrong last; empty = nothing."""
    failures: int
    """How often it failed."""
    created_at: datetime
    """When it was first asked for, in UTC."""
    due_at: datetime
    """When it is looked at next, in UTC."""
    order_url: str | None
    """Address of the order at the authority; None = not sent yet."""
    certificate: str | None = field(repr=False)
    """Chain, PEM; None = not issued."""
    not_after: datetime | None
    """When the certificate ends, in UTC; None = not issued."""

    @classmethod
    def of(cls, row: RowMapping) -> Self:
        """Make the order of a row."""
        held = ("held_by", "held_until")
        values: dict[str, Any] = {
            column.name: row[column.name] for column in ORDERS.columns if column.name not in held
        }
        return cls(
            **{
                **values,
                "names": tuple(row["names"].split()),
                "state": OrderState(row["state"]),
            }
        )


Permits = Callable[[CertificateOrder, Sequence[Submission]], datetime | None]
"""Answers when an order may be sent to the authority; None = now."""


class CertificateOrders:
    """The tables."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def find(self, enclave_uid: str, request_digest: str) -> CertificateOrder | None:
        """Return the order of a request; None = it is new."""
        query = select(ORDERS).where(
            ORDERS.c.enclave_uid == enclave_uid, ORDERS.c.request_digest == request_digest
        )
        async with self._engine.connect() as connection:
            row = (await connection.execute(query)).mappings().one_or_none()
        return CertificateOrder.of(row) if row else None

    async def times_since(self, enclave_uid: str, since: datetime) -> list[datetime]:
        """Return when an enclave's requests of late came, oldest first."""
        query = (
            select(ORDERS.c.created_at)
            .where(ORDERS.c.enclave_uid == enclave_uid, ORDERS.c.created_at > since)
            .order_by(ORDERS.c.created_at)
        )
        async with self._engine.connect() as connection:
            return list((await connection.execute(query)).scalars())

    async def add(
        self,
        *,
        enclave_uid: str,
        enclave: str,
        request_digest: str,
        request: str,
        names: Sequence[str],
        now: datetime,
        certificate: str | None = None,
        not_after: datetime | None = None,
    ) -> CertificateOrder:
        """Add an order, with its certificate where that was signed at once.

        Returns
        -------
        CertificateOrder
            The order; the earlier one when another process was faster with the same request.
        """
        state = OrderState.QUEUED if certificate is None else OrderState.ISSUED
        row = {
            "id": str(uuid.uuid4()),
            "enclave_uid": enclave_uid,
            "enclave": enclave,
            "request_digest": request_digest,
            "request": request,
            "names": " ".join(names),
            "state": state.value,
            "message": "",
            "failures": 0,
            "created_at": now,
            "due_at": now,
            "certificate": certificate,
            "not_after": not_after,
        }
        try:
            async with self._engine.begin() as connection:
                await connection.execute(insert(ORDERS).values(row))
        except IntegrityError:
            pass
        found = await self.find(enclave_uid, request_digest)
        assert found is not None
        return found

    async def take(
        self, *, holder: str, now: datetime, hold: timedelta, permits: Permits, window: timedelta
    ) -> CertificateOrder | None:
        """Take the next order that is due and may be sent; others leave it alone meanwhile.

        Parameters
        ----------
        holder
            Identifier of who takes it.
        now
            Present time in UTC.
        hold
            How long nobody else takes it.
        permits
            Answers when an order that was not sent yet may be; asked with the submissions of
            `window`. One that has to wait is put off until then.
        window
            How far back submissions are looked at.

        Returns
        -------
        CertificateOrder | None
            The order; None = nothing to do. Its submission is counted already.
        """
        due = (
            select(ORDERS)
            .where(
                ORDERS.c.state == OrderState.QUEUED.value,
                ORDERS.c.due_at <= now,
                or_(ORDERS.c.held_until.is_(None), ORDERS.c.held_until <= now),
            )
            .order_by(ORDERS.c.created_at, ORDERS.c.id)
        )
        async with self._engine.begin() as connection:
            # The first write takes the lock: what is counted below cannot change meanwhile.
            await connection.execute(
                update(CERTIFICATE_TURNS).values(value=CERTIFICATE_TURNS.c.value + 1)
            )
            found = (await connection.execute(due)).mappings().all()
            orders = [CertificateOrder.of(row) for row in found]
            if not orders:
                return None
            sent = await connection.execute(
                select(SUBMISSIONS.c.at, SUBMISSIONS.c.names).where(SUBMISSIONS.c.at > now - window)
            )
            submissions = [Submission(row.at, tuple(row.names.split())) for row in sent]
            for order in orders:
                later = None if order.order_url else permits(order, submissions)
                this = update(ORDERS).where(ORDERS.c.id == order.id)
                if later is not None:
                    words = "waits for the rate limits of the authority"
                    await connection.execute(this.values(due_at=later, message=words))
                    continue
                await connection.execute(this.values(held_by=holder, held_until=now + hold))
                if not order.order_url:
                    row = {"at": now, "names": " ".join(order.names)}
                    await connection.execute(insert(SUBMISSIONS).values(row))
                return order
        return None

    async def hold(self, order: CertificateOrder, holder: str, until: datetime) -> None:
        """Go on to hold an order."""
        await self._change(order, holder, held_until=until)

    async def note_sent(self, order: CertificateOrder, holder: str, url: str) -> None:
        """Note the address of an order at the authority, so that nobody sends it again."""
        await self._change(order, holder, order_url=url)

    async def note_issued(
        self, order: CertificateOrder, holder: str, certificate: str, not_after: datetime
    ) -> None:
        """Note the certificate of an order."""
        await self._change(
            order,
            holder,
            state=OrderState.ISSUED.value,
            message="",
            certificate=certificate,
            not_after=not_after,
            held_until=None,
        )

    async def note_failed(
        self, order: CertificateOrder, holder: str, message: str, due_at: datetime, *, resumes: bool
    ) -> None:
        """Note that an order failed and is tried again.

        Parameters
        ----------
        order
            The order.
        holder
            Who had taken it.
        message
            What went wrong, for people.
        due_at
            When it is tried again, in UTC.
        resumes
            Whether the order at the authority goes on; otherwise a new one is sent.
        """
        values: dict[str, Any] = {} if resumes else {"order_url": None}
        await self._change(
            order,
            holder,
            message=message,
            failures=order.failures + 1,
            due_at=due_at,
            held_until=None,
            **values,
        )

    async def note_refused(self, order: CertificateOrder, holder: str, message: str) -> None:
        """Note that an order is over without a certificate."""
        await self._change(
            order, holder, state=OrderState.REFUSED.value, message=message, held_until=None
        )

    async def _change(self, order: CertificateOrder, holder: str, **values: Any) -> None:
        """Change an order, unless somebody else has taken it meanwhile."""
        change = update(ORDERS).where(ORDERS.c.id == order.id, ORDERS.c.held_by == holder)
        async with self._engine.begin() as connection:
            await connection.execute(change.values(**values))

    async def next_due(self) -> datetime | None:
        """Return when the next order is due or free again; None = none is queued."""
        query = select(ORDERS.c.due_at, ORDERS.c.held_until).where(
            ORDERS.c.state == OrderState.QUEUED.value
        )
        async with self._engine.connect() as connection:
            rows = (await connection.execute(query)).all()
        return min((max(row.due_at, row.held_until or row.due_at) for row in rows), default=None)

    async def sweep(self, *, orders_before: datetime, submissions_before: datetime) -> None:
        """Forget what is over: orders that ended, and submissions that no limit counts."""
        old = delete(ORDERS).where(
            ORDERS.c.state != OrderState.QUEUED.value, ORDERS.c.created_at < orders_before
        )
        async with self._engine.begin() as connection:
            await connection.execute(old)
            await connection.execute(
                delete(SUBMISSIONS).where(SUBMISSIONS.c.at < submissions_before)
            )
