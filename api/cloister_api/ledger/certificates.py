"""Orders of certificates in the ledger, where a restart or another replica finds them.

Added by `cloister_api.services.enclaves`, processed by the queue of the ACME account.
"""

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Self

from sqlalchemy import (
    ColumnElement,
    RowMapping,
    and_,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from cloister_api.ledger.tables import (
    CERTIFICATE_KEYS,
    CERTIFICATE_ORDERS,
    CERTIFICATE_SUBMISSIONS,
    CERTIFICATE_TURNS,
)

ORDERS, SUBMISSIONS = CERTIFICATE_ORDERS, CERTIFICATE_SUBMISSIONS
KEYS = CERTIFICATE_KEYS


class OrderState(StrEnum):
    """State of an order."""

    QUEUED = "queued"
    """It waits or is being processed."""
    ISSUED = "issued"
    """The certificate was issued."""
    REFUSED = "refused"
    """The authority will not sign it, or its enclave no longer needs it."""


@dataclass(frozen=True, slots=True)
class Submission:
    """An order that was sent to the authority."""

    at: datetime
    """When, in UTC."""
    names: tuple[str, ...]
    """Host names that it was for, sorted."""
    namespace: str = ""
    """Namespace of the organization that it was for; empty if sent by an earlier release."""


@dataclass(frozen=True, slots=True)
class CertificateOrder:
    """An order."""

    id: str
    """Identifier of the row."""
    enclave_uid: str
    """uid of the Enclave that requested it."""
    enclave: str
    """Its namespace and name, for people."""
    request_digest: str
    """SHA-256 of the request in hexadecimal."""
    request: str = field(repr=False)
    """The request, PEM."""
    names: tuple[str, ...]
    """Host names that it is for, sorted."""
    state: OrderState
    """Its state."""
    message: str
    """The last error; empty if there is none."""
    failures: int
    """How often it failed."""
    created_at: datetime
    """When it was first requested, in UTC."""
    due_at: datetime
    """When its next attempt is due, in UTC."""
    order_url: str | None
    """Address of the order at the authority; None if not sent yet."""
    certificate: str | None = field(repr=False)
    """Chain, PEM; None if not issued."""
    not_after: datetime | None
    """When the certificate expires, in UTC; None if not issued."""

    @property
    def namespace(self) -> str:
        """Namespace of the organization that it is for."""
        return self.enclave.partition("/")[0]

    @classmethod
    def of(cls, row: RowMapping) -> Self:
        """Build the order from a row."""
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


@dataclass(frozen=True, slots=True)
class DueOrders:
    """What the next order is chosen from."""

    orders: Sequence[CertificateOrder]
    """Orders that are due and that no worker has leased, oldest first."""
    sent: Sequence[Submission]
    """Orders that were sent within the window."""
    certified: Mapping[str, tuple[datetime, datetime]]
    """Validity of the newest certificate of each enclave, by the enclave's uid."""


@dataclass(frozen=True, slots=True)
class OrderWait:
    """Why an order is not sent now."""

    until: datetime
    """When it is looked at again, in UTC."""
    reason: str
    """The limit that it waits for, for people."""


@dataclass(frozen=True, slots=True)
class OrderChoice:
    """Which order is processed next, and what becomes of those before it."""

    order: CertificateOrder | None
    """The next one; None if none may be sent now."""
    waits: Mapping[str, OrderWait]
    """Those that must wait, by identifier."""
    refused: Mapping[str, str]
    """Those that are no longer needed, by identifier, with the reason."""


class CertificateOrders:
    """The tables of orders."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def find(self, enclave_uid: str, request_digest: str) -> CertificateOrder | None:
        """Return the order of a request; None if it is new."""
        query = select(ORDERS).where(
            ORDERS.c.enclave_uid == enclave_uid, ORDERS.c.request_digest == request_digest
        )
        async with self._engine.connect() as connection:
            row = (await connection.execute(query)).mappings().one_or_none()
        return CertificateOrder.of(row) if row else None

    async def times_since(self, enclave_uid: str, since: datetime) -> list[datetime]:
        """Return the times of an enclave's recent requests, oldest first."""
        query = (
            select(ORDERS.c.created_at)
            .where(ORDERS.c.enclave_uid == enclave_uid, ORDERS.c.created_at > since)
            .order_by(ORDERS.c.created_at)
        )
        async with self._engine.connect() as connection:
            return list((await connection.execute(query)).scalars())

    async def bound_key(self, enclave_uid: str) -> str | None:
        """Return the digest of the key that an enclave is bound to; None if not yet."""
        query = select(KEYS.c.key_digest).where(KEYS.c.enclave_uid == enclave_uid)
        async with self._engine.connect() as connection:
            return (await connection.execute(query)).scalar_one_or_none()

    async def bind_key(self, enclave_uid: str, key_digest: str, now: datetime) -> str:
        """Bind an enclave to a key, unless another process was faster.

        Returns
        -------
        str
            Digest of the key that it is bound to.
        """
        row = {"enclave_uid": enclave_uid, "key_digest": key_digest, "bound_at": now}
        try:
            async with self._engine.begin() as connection:
                await connection.execute(insert(KEYS).values(row))
        except IntegrityError:
            pass
        bound = await self.bound_key(enclave_uid)
        assert bound is not None
        return bound

    async def note_second_key(
        self, enclave_uid: str, now: datetime, *, again_after: timedelta
    ) -> bool:
        """Record that another key was refused; return False when that was recorded a moment ago.

        Parameters
        ----------
        now
            The time, in UTC.
        again_after
            How long a record lasts.
        """
        change = update(KEYS).where(
            KEYS.c.enclave_uid == enclave_uid,
            or_(KEYS.c.refused_at.is_(None), KEYS.c.refused_at <= now - again_after),
        )
        async with self._engine.begin() as connection:
            return (await connection.execute(change.values(refused_at=now))).rowcount > 0

    async def drop_keys(self, *, bound_before: datetime, live: Collection[str]) -> None:
        """Forget the keys of enclaves that are gone.

        Parameters
        ----------
        bound_before
            Only keys that were bound before; a younger enclave may not be known yet.
        """
        async with self._engine.begin() as connection:
            old = select(KEYS.c.enclave_uid).where(KEYS.c.bound_at < bound_before)
            for uid in (await connection.execute(old)).scalars().all():
                if uid not in live:
                    await connection.execute(delete(KEYS).where(KEYS.c.enclave_uid == uid))

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
        """Add an order, with its certificate if that was signed immediately.

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
        self,
        *,
        holder: str,
        now: datetime,
        hold: timedelta,
        choose: Callable[[DueOrders], OrderChoice],
        window: timedelta,
    ) -> CertificateOrder | None:
        """Lease the next order that is due and may be sent.

        Parameters
        ----------
        now
            Present time in UTC.
        choose
            Chooses the next order.

        Returns
        -------
        CertificateOrder | None
            The order; None if nothing is due. Its submission is already recorded.
        """
        due = and_(
            ORDERS.c.state == OrderState.QUEUED.value,
            ORDERS.c.due_at <= now,
            or_(ORDERS.c.held_until.is_(None), ORDERS.c.held_until <= now),
        )
        async with self._engine.begin() as connection:
            # The first write takes the lock: what is counted below cannot change meanwhile.
            await connection.execute(
                update(CERTIFICATE_TURNS).values(value=CERTIFICATE_TURNS.c.value + 1)
            )
            queue = select(ORDERS).where(due).order_by(ORDERS.c.created_at, ORDERS.c.id)
            found = (await connection.execute(queue)).mappings().all()
            if not found:
                return None
            choice = choose(
                DueOrders(
                    [CertificateOrder.of(row) for row in found],
                    await submissions(connection, now - window),
                    await certified(connection, due),
                )
            )
            for each, wait in choice.waits.items():
                change = update(ORDERS).where(ORDERS.c.id == each)
                await connection.execute(change.values(due_at=wait.until, message=wait.reason))
            for each, reason in choice.refused.items():
                change = update(ORDERS).where(ORDERS.c.id == each)
                await connection.execute(
                    change.values(state=OrderState.REFUSED.value, message=reason)
                )
            if choice.order is not None:
                await lease(connection, choice.order, holder, now, hold)
        return choice.order

    async def hold(self, order: CertificateOrder, holder: str, until: datetime) -> None:
        """Renew the lease of an order."""
        await self._change(order, holder, held_until=until)

    async def note_sent(self, order: CertificateOrder, holder: str, url: str) -> None:
        """Record the address of an order at the authority, so that it is not sent again."""
        await self._change(order, holder, order_url=url)

    async def note_issued(
        self, order: CertificateOrder, holder: str, certificate: str, not_after: datetime
    ) -> None:
        """Record the certificate of an order."""
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
        """Record that an attempt failed, and when the next one is due.

        Parameters
        ----------
        order
            The order.
        due_at
            When the next attempt is due, in UTC.
        resumes
            Whether the order at the authority can be resumed; otherwise a new one is sent.
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
        """Record that an order ended without a certificate."""
        await self._change(
            order, holder, state=OrderState.REFUSED.value, message=message, held_until=None
        )

    async def _change(self, order: CertificateOrder, holder: str, **values: Any) -> None:
        """Update an order, unless another worker has leased it meanwhile."""
        change = update(ORDERS).where(ORDERS.c.id == order.id, ORDERS.c.held_by == holder)
        async with self._engine.begin() as connection:
            await connection.execute(change.values(**values))

    async def next_due(self) -> datetime | None:
        """Return when the next order is due or its lease expires; None if none is queued."""
        query = select(ORDERS.c.due_at, ORDERS.c.held_until).where(
            ORDERS.c.state == OrderState.QUEUED.value
        )
        async with self._engine.connect() as connection:
            rows = (await connection.execute(query)).all()
        return min((max(row.due_at, row.held_until or row.due_at) for row in rows), default=None)

    async def expiries(self) -> dict[str, datetime]:
        """Return when the newest certificate of each enclave expires, by the enclave's uid."""
        query = (
            select(ORDERS.c.enclave_uid, func.max(ORDERS.c.not_after).label("not_after"))
            .where(ORDERS.c.not_after.is_not(None))
            .group_by(ORDERS.c.enclave_uid)
        )
        async with self._engine.connect() as connection:
            return {row.enclave_uid: row.not_after for row in await connection.execute(query)}

    async def failing(self) -> int:
        """Return how many queued orders have failed at least once."""
        query = select(func.count()).where(
            ORDERS.c.state == OrderState.QUEUED.value, ORDERS.c.failures > 0
        )
        async with self._engine.connect() as connection:
            return (await connection.execute(query)).scalar_one()

    async def sweep(
        self, *, orders_before: datetime, submissions_before: datetime, now: datetime
    ) -> None:
        """Delete completed orders, and submissions that no limit counts any more.

        An order whose certificate is still valid stays: `expiries` tells from it when that ends.
        """
        old = delete(ORDERS).where(
            ORDERS.c.state != OrderState.QUEUED.value,
            ORDERS.c.created_at < orders_before,
            or_(ORDERS.c.not_after.is_(None), ORDERS.c.not_after < now),
        )
        async with self._engine.begin() as connection:
            await connection.execute(old)
            await connection.execute(
                delete(SUBMISSIONS).where(SUBMISSIONS.c.at < submissions_before)
            )


async def submissions(connection: AsyncConnection, since: datetime) -> list[Submission]:
    """Return the orders that were sent after a time."""
    columns = (SUBMISSIONS.c.at, SUBMISSIONS.c.names, SUBMISSIONS.c.namespace)
    rows = await connection.execute(select(*columns).where(SUBMISSIONS.c.at > since))
    return [Submission(row.at, tuple(row.names.split()), row.namespace) for row in rows]


async def certified(
    connection: AsyncConnection, due: ColumnElement[bool]
) -> dict[str, tuple[datetime, datetime]]:
    """Return the validity of the newest certificate of each enclave that has a due order."""
    rows = await connection.execute(
        select(ORDERS.c.enclave_uid, ORDERS.c.created_at, ORDERS.c.not_after)
        .where(
            ORDERS.c.not_after.is_not(None),
            ORDERS.c.enclave_uid.in_(select(ORDERS.c.enclave_uid).where(due)),
        )
        .order_by(ORDERS.c.not_after)
    )
    return {row.enclave_uid: (row.created_at, row.not_after) for row in rows}


async def lease(
    connection: AsyncConnection,
    order: CertificateOrder,
    holder: str,
    now: datetime,
    hold: timedelta,
) -> None:
    """Lease an order to a worker, and count it if it was not sent yet."""
    this = update(ORDERS).where(ORDERS.c.id == order.id)
    await connection.execute(this.values(held_by=holder, held_until=now + hold))
    if not order.order_url:
        row = {"at": now, "names": " ".join(order.names), "namespace": order.namespace}
        await connection.execute(insert(SUBMISSIONS).values(row))
