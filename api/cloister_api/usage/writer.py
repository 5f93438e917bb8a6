"""Writes reports into the ledger, in one transaction: events, sums, usage of keys, dead letters.

Runs in a thread of its own; one transaction takes many reports. Every writer increments the counter
``usage`` first, which serializes writers: no deadlock, and nothing is counted twice.
"""

import gc
import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, select, update
from sqlalchemy.exc import IntegrityError

from cloister_api.ledger.bulk import add_to_sums, insert_rows, known
from cloister_api.ledger.keys.key_material import KeySealer
from cloister_api.ledger.tables import API_KEYS, KEY_TOTALS, SEQUENCES
from cloister_api.ledger.usage_tables import DELIVERIES, EVENTS, NAMES, POINTS, ROLLUPS, SUMS
from cloister_api.usage import retention
from cloister_api.usage.events import CountedEvent, RejectedEvent
from cloister_api.usage.prices import Prices, cost_of, price_count, read_all
from cloister_api.usage.windows import EVER, CollectedSums, Place, Sums, add

EVENT_COLUMNS = (
    "event_key",
    "occurred_at",
    "received_at",
    "reporter",
    "organization",
    "key_id",
    "key_index",
    "operation",
    "model",
    *SUMS,
    "price_version",
    "request_id",
    "attributes",
    "meters",
)
NOBODY = (None, None)
KEPT_KEYS = 200_000
"""Most keys whose organization is cached."""


@dataclass(frozen=True, slots=True)
class VerifiedReport:
    """A report whose signature is valid, with its accepted events."""

    reporter: str
    """Its reporter."""
    nonce: str
    """Its nonce."""
    digest: bytes
    """SHA-256 of its body."""
    received_at: int
    """When it was received, in microseconds."""
    events: list[CountedEvent]
    """Its accepted events."""
    rejected: Sequence[RejectedEvent] = ()
    """Its other events."""


@dataclass(slots=True)
class ReportOutcome:
    """Outcome of a report."""

    reused: bool = False
    """Whether its nonce was used before with another body: nothing of it was accepted."""
    accepted: int = 0
    """Events that are counted now."""
    duplicates: int = 0
    """Events that were counted before."""


Admitted = list[tuple[VerifiedReport, bytes, CountedEvent]]
"""Events that were not counted before, each with its report and its `event_key`."""
Numbers = tuple[
    dict[str, tuple[bytes, tuple[int, int] | None]], dict[tuple[str, str, str], tuple[int, int]]
]
"""By text of a key its index, and its number with its organization's when there is such a key; by
service, operation and model the numbers of operation and model."""


class UsageWriter:
    """Writes reports."""

    def __init__(self, engine: Engine, material: KeySealer) -> None:
        self._engine = engine
        self._material = material
        self._names: dict[tuple[str, str], int] = {}
        self._keys: dict[bytes, tuple[int, int]] = {}
        self._prices = Prices.none()
        self._price_count = 0

    def write(self, deliveries: Sequence[VerifiedReport]) -> list[ReportOutcome]:
        """Write reports in one transaction: all of them count, or none does.

        Returns
        -------
        list of ReportOutcome
            One for each report.
        """
        try:
            with paused_garbage_collection(), self._engine.begin() as connection:
                return self._write(connection, deliveries)
        except BaseException:
            # Numbers that this transaction assigned were rolled back.
            self._names.clear()
            self._keys.clear()
            raise

    def _write(
        self, connection: Connection, deliveries: Sequence[VerifiedReport]
    ) -> list[ReportOutcome]:
        usage = SEQUENCES.c.name == "usage"
        connection.execute(update(SEQUENCES).where(usage).values(value=SEQUENCES.c.value + 1))
        change = connection.execute(select(SEQUENCES.c.value).where(usage)).scalar_one()
        if (count := price_count(connection)) != self._price_count:
            self._prices, self._price_count = read_all(connection), count
        outcomes = [ReportOutcome() for _ in deliveries]
        fresh = []
        for delivery, outcome in zip(deliveries, outcomes, strict=True):
            outcome.reused = not record_nonce(connection, delivery)
            if not outcome.reused:
                fresh.append((delivery, outcome))
        admitted = admit(fresh, frozenset())
        numbers = self._resolve_numbers(connection, admitted)
        rows, collected = self._rows(admitted, numbers)
        if not inserted(connection, rows):
            # At least one event was counted before: leave out all that were.
            seen = known(connection, EVENTS, "event_key", [key for _, key, _ in admitted])
            rows, collected = self._rows(admit(fresh, seen), numbers)
            insert_rows(connection, EVENTS, EVENT_COLUMNS, rows)
        write_sums(connection, collected, change)
        index_of = self._material.index
        for delivery, _ in fresh:
            if delivery.rejected:
                retention.keep(
                    connection,
                    delivery.reporter,
                    delivery.received_at,
                    delivery.rejected,
                    index_of,
                )
        return outcomes

    def _rows(
        self, admitted: Admitted, numbers: Numbers
    ) -> tuple[list[tuple[Any, ...]], CollectedSums]:
        """Return the rows of events, and their sums."""
        rows: list[tuple[Any, ...]] = []
        collected = CollectedSums()
        add_event, price_at = collected.add, self._prices.at
        owners, kinds = numbers
        for delivery, key, event in admitted:
            index, owner = owners.get(event.api_key or "", NOBODY)
            kind = (event.service, event.operation, event.model)
            operation, model = kinds[kind]
            at, received, others = event.at, delivery.received_at, event.others
            prices, cost, version = price_at(at), 0, None
            if prices is not None:
                cost = cost_of(prices.rates(*kind), event.tokens, event.requests, others)
                version = prices.version
            values = (*event.tokens, event.requests, cost)
            key_id, organization = owner or NOBODY
            rows.append(
                (
                    key,
                    at,
                    received,
                    delivery.reporter,
                    organization,
                    key_id,
                    None if owner else index,
                    operation,
                    model,
                    *values,
                    version,
                    event.request_id,
                    event.attributes,
                    json.dumps(others) if others else None,
                )
            )
            if owner:
                add_event(owner, model, at, received, values)
        return rows, collected

    def _indexes(self, admitted: Admitted) -> dict[str, bytes]:
        """Return the index of each key that events name."""
        return {
            text: self._material.index(text)
            for text in {event.api_key for _, _, event in admitted if event.api_key}
        }

    def _resolve_numbers(self, connection: Connection, admitted: Admitted) -> Numbers:
        """Look up or assign numbers of keys, organizations, models and operations."""
        kinds = {(event.service, event.operation, event.model) for _, _, event in admitted}
        names = {("operation", f"{service}/{operation}") for service, operation, _ in kinds}
        self._assign_numbers(connection, names | {("model", model) for *_, model in kinds})
        indexes = self._indexes(admitted)
        self._resolve_keys(connection, set(indexes.values()))
        owners = {text: (index, self._keys.get(index)) for text, index in indexes.items()}
        numbered = {
            kind: (self._names["operation", f"{kind[0]}/{kind[1]}"], self._names["model", kind[2]])
            for kind in kinds
        }
        return owners, numbered

    def _resolve_keys(self, connection: Connection, indexes: set[bytes]) -> None:
        """Look up which keys the indexes belong to, deleted ones as well."""
        missing = sorted(indexes - self._keys.keys())
        if len(self._keys) > KEPT_KEYS:
            self._keys.clear()
            missing = sorted(indexes)
        for begin in range(0, len(missing), 1_000):
            page = missing[begin : begin + 1_000]
            rows = connection.execute(
                select(API_KEYS.c.key_index, API_KEYS.c.id, API_KEYS.c.organization_id).where(
                    API_KEYS.c.key_index.in_(page)
                )
            ).all()
            self._assign_numbers(
                connection, {("organization", row.organization_id) for row in rows}
            )
            for row in rows:
                number = self._names["organization", row.organization_id]
                self._keys[row.key_index] = (row.id, number)

    def _assign_numbers(self, connection: Connection, names: set[tuple[str, str]]) -> None:
        """Look up the number of each name, or assign one."""
        for kind, name in sorted(names - self._names.keys()):
            same = (NAMES.c.kind == kind) & (NAMES.c.name == name)
            found = connection.execute(select(NAMES.c.id).where(same)).scalar()
            if found is None:
                made = NAMES.insert().values(kind=kind, name=name).returning(NAMES.c.id)
                found = connection.execute(made).scalar_one()
            self._names[kind, name] = found


@contextmanager
def paused_garbage_collection() -> Iterator[None]:
    """Pause the cyclic garbage collector during a transaction.

    It would traverse the many rows and sums that live until the end, again and again; they have no
    cycles and are freed by reference counting. Measured: a third of the transaction's CPU time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def admit(fresh: list[tuple[VerifiedReport, ReportOutcome]], seen: Collection[bytes]) -> Admitted:
    """Return the events that were not counted before, each once, and count those of each report.

    Parameters
    ----------
    fresh
        Reports and their outcomes.
    seen
        `event_key` of events that were counted before.
    """
    admitted: Admitted = []
    here = set(seen)
    for delivery, outcome in fresh:
        outcome.accepted = outcome.duplicates = 0
        for event in delivery.events:
            key = event_key(event.event_id)
            if key in here:
                outcome.duplicates += 1
                continue
            here.add(key)
            outcome.accepted += 1
            admitted.append((delivery, key, event))
    return admitted


def inserted(connection: Connection, rows: list[tuple[Any, ...]]) -> bool:
    """Insert events as if none was counted before; False means one was, and nothing is inserted.

    Retries are rare, so that checking for them first would cost each event a lookup.
    """
    try:
        with connection.begin_nested():
            insert_rows(connection, EVENTS, EVENT_COLUMNS, rows)
    except IntegrityError:
        return False
    return True


def write_sums(connection: Connection, collected: CollectedSums, change: int) -> None:
    """Add collected sums to the ledger's."""
    place = ("level", "organization", "bucket")
    rows: list[tuple[int, ...]] = []
    series: list[tuple[int, ...]] = []
    totals: dict[Place, Sums] = {}
    for level, keys, points in collected.rolled_up():
        seconds = level.seconds
        if level.by_key:
            rows += [(seconds, *at, *values) for at, values in keys.items()]
        if level.points:
            series += [
                (seconds, organization, begin, model, *values)
                for (organization, begin, _, model), values in points.items()
            ]
        if seconds == EVER:
            for (_, _, key, _), values in keys.items():
                add(totals, (key, 0, 0, 0), values)
    used = [(key[0], *values, change) for key, values in totals.items()]
    add_to_sums(connection, ROLLUPS, (*place, "key_id", "model"), SUMS, rows)
    add_to_sums(connection, POINTS, (*place, "model"), SUMS, series)
    add_to_sums(connection, KEY_TOTALS, ("key_id",), SUMS, used, replaced=("change",))


def record_nonce(connection: Connection, delivery: VerifiedReport) -> bool:
    """Record the nonce of a report; False if it was used with another body."""
    same = (DELIVERIES.c.reporter == delivery.reporter) & (DELIVERIES.c.nonce == delivery.nonce)
    digest = connection.execute(select(DELIVERIES.c.digest).where(same)).scalar()
    if digest is None:
        row = {
            "reporter": delivery.reporter,
            "nonce": delivery.nonce,
            "digest": delivery.digest,
            "received_at": delivery.received_at,
        }
        connection.execute(DELIVERIES.insert().values(row))
        return True
    return bool(digest == delivery.digest)


def event_key(event_id: str) -> bytes:
    """Return a short digest of an event's identifier, by which it is counted once."""
    return hashlib.blake2b(event_id.encode(), digest_size=16).digest()
