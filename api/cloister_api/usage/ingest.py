"""Ingests reports of usage: verifies signatures (spec 26.8), writes many at a time."""

import asyncio
import hashlib
import hmac
import logging
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Self

from sqlalchemy.exc import SQLAlchemyError

from cloister_api.errors import ApiError, bad_request, unavailable
from cloister_api.ledger.availability import is_away
from cloister_api.ledger.keys.admin_keys import Reporter, Reporters
from cloister_api.usage.events import RejectedEvent, judge_events, read_report
from cloister_api.usage.writer import ReportOutcome, UsageWriter, VerifiedReport
from cloister_clients.clock import Clock
from cloister_clients.foreign_json import parse_apart

SKEW = timedelta(minutes=10)
"""How far the clock of a reporter may be off."""
SIGNATURE = re.compile(r"[0-9a-fA-F]{64}")
RFC_3339_UTC = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|\+00:00)$")


def refused(message: str) -> ApiError:
    """Build a 401 with the reason; a reporter retries later, or its administrator fixes it."""
    return ApiError(401, "UNAUTHORIZED", message)


@dataclass(frozen=True, slots=True)
class ReportSignature:
    """The signature headers of a report."""

    reporter: str
    """Its reporter."""
    timestamp: str
    """When, as it was sent."""
    nonce: str
    """Identifier of the delivery."""
    signature: str
    """The signature in hex."""

    @classmethod
    def of(cls, headers: Mapping[str, str], service: str) -> Self:
        """Read the headers.

        Parameters
        ----------
        headers
            Headers, by names in lower case.
        service
            Name of the installation, which is part of the names of the headers.

        Raises
        ------
        ApiError
            401 when one is missing.
        """
        names = [
            f"x-{service}-{part}" for part in ("reporter-id", "timestamp", "nonce", "signature")
        ]
        values = [headers.get(name, "") for name in names]
        missing = [name for name, value in zip(names, values, strict=True) if not value]
        if missing:
            raise refused(f"the report is not signed: {', '.join(missing)} is missing")
        return cls(*values)

    def check_form(self) -> None:
        """Refuse what is not a signature, whatever the body is.

        Raises
        ------
        ApiError
            401 when it is none.
        """
        if not SIGNATURE.fullmatch(self.signature):
            raise WRONG

    def check_time(self, now: datetime) -> None:
        """Refuse a report whose time is too far off.

        Raises
        ------
        ApiError
            401 when it is, or is not a time.
        """
        found = RFC_3339_UTC.match(self.timestamp)
        if found is None:
            raise refused("the timestamp is not RFC 3339 in UTC, such as 2027-01-31T00:00:00.5Z")
        try:
            at = datetime.fromisoformat(found[1]).replace(tzinfo=UTC)
        except ValueError as error:
            raise refused("the timestamp is not a time") from error
        if abs(at - now) > SKEW:
            raise refused("the timestamp is more than 10 minutes off; set the reporter's clock")

    def check(self, secret: bytes, method: str, path: str, body: bytes) -> bytes:
        """Refuse a wrong signature, and return the digest of the body.

        Raises
        ------
        ApiError
            401 when it is wrong.
        """
        digest = hashlib.sha256(body)
        right = signature_of(secret, method, path, self, digest.hexdigest())
        if not hmac.compare_digest(right.encode(), self.signature.lower().encode()):
            raise WRONG
        return digest.digest()


WRONG = refused("unknown reporter or wrong signature")
"""One response for both: it must not reveal which reporters exist."""


def signature_of(
    secret: bytes, method: str, path: str, signed: ReportSignature, digest: str
) -> str:
    """Return the signature that a report must have.

    Parameters
    ----------
    digest
        SHA-256 of the body in hex.
    """
    parts = (method, path, signed.reporter, signed.timestamp, signed.nonce, digest)
    return hmac.new(secret, "\n".join(parts).encode(), hashlib.sha256).hexdigest()


logger = logging.getLogger(__name__)

PATH = "/api/internal/usage-reports"
"""Path of the endpoint, which is signed."""
TRANSACTION_EVENTS = 60_000
"""Approximate number of events in one transaction."""
WAITING_EVENTS = 120_000
"""Events that may be queued before reports are refused."""
WAITING_BYTES = 64 * 1024 * 1024
"""Bytes of bodies that may be in memory before reports are refused."""
BUSY = ApiError(
    429, "RATE_LIMITED", "the queue of usage reports is full; send it again", retry_after=1
)


@dataclass(frozen=True, slots=True)
class ReportReceipt:
    """Acknowledgement of a report."""

    accepted: int
    """Events that are counted now."""
    duplicates: int
    """Events that were counted before."""
    rejected: list[RejectedEvent]
    """Events that were not accepted."""


@dataclass(frozen=True, slots=True)
class SignedReport:
    """A report whose headers are right; its signature is not verified."""

    signature: ReportSignature
    """The signature headers."""
    reporter: str
    """Its reporter."""
    secret: bytes = field(repr=False)
    """What that one signs with."""


@dataclass(slots=True)
class QueuedReport:
    """A report that waits for its transaction."""

    delivery: VerifiedReport
    """The report."""
    done: "asyncio.Future[ReportOutcome]" = field(repr=False)
    """Its outcome."""


class Ingest:
    """The ingest of usage reports."""

    def __init__(
        self, reporters: Reporters, writer: UsageWriter, service: str, clock: Clock
    ) -> None:
        self._reporters = reporters
        self._writer = writer
        self._service = service
        self._clock = clock
        self._queue: deque[QueuedReport] = deque()
        self._count = 0
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._lookups: dict[str, asyncio.Future[Reporter | None]] = {}

    async def admit(self, headers: Mapping[str, str]) -> SignedReport:
        """Judge the headers of a report, before its body is read.

        Parameters
        ----------
        headers
            Headers of the request, by names in lower case.

        Raises
        ------
        ApiError
            401 when one is missing or malformed, the time is off, or the reporter is unknown; 429
            when the queue is full.
        """
        signed = ReportSignature.of(headers, self._service)
        signed.check_form()
        signed.check_time(self._clock())
        if self._full(0):
            raise BUSY
        reporter = await self._reporter(signed.reporter)
        if reporter is None or reporter.secret is None:
            raise WRONG
        return SignedReport(signed, reporter.id, reporter.secret)

    def _full(self, size: int) -> bool:
        """Return whether a body of a size in bytes is one too many."""
        return self._count >= WAITING_EVENTS or self._bytes + size > WAITING_BYTES

    async def accept(self, report: SignedReport, body: bytes) -> ReportReceipt:
        """Accept a report; return when its events are committed.

        Parameters
        ----------
        report
            Its headers, from `admit`.

        Raises
        ------
        ApiError
            400 when it is malformed, 401 when its signature is wrong, 429 when the queue is full,
            503 when the ledger does not accept it.
        """
        if self._full(len(body)):
            raise BUSY
        self._bytes += len(body)
        try:
            return await self._verify(report, body)
        finally:
            self._bytes -= len(body)

    async def _verify(self, sent: SignedReport, body: bytes) -> ReportReceipt:
        """Verify a report and wait until it is written."""
        received = round(self._clock().timestamp() * 1_000_000)
        delivery = await parse_apart(partial(verified, sent, received), body)
        outcome = await self._written(delivery)
        if outcome.reused:
            raise refused("the nonce was used with another body; use a new delivery_id")
        return ReportReceipt(outcome.accepted, outcome.duplicates, list(delivery.rejected))

    async def _reporter(self, name: str) -> Reporter | None:
        """Look a reporter up, once for all of its concurrent reports."""
        lookup = self._lookups.get(name)
        if lookup is None:
            lookup = self._lookups[name] = asyncio.ensure_future(self._reporters.find(name))
            lookup.add_done_callback(lambda _: self._lookups.pop(name))
        return await asyncio.shield(lookup)

    async def _written(self, delivery: VerifiedReport) -> ReportOutcome:
        """Queue a report and wait for its transaction."""
        if self._count >= WAITING_EVENTS:  # others were queued while the reporter was looked up
            raise BUSY
        waiting = QueuedReport(delivery, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        self._count += weight(waiting)
        self._arrived.set()
        return await waiting.done

    async def run(self) -> None:
        """Write queued reports until cancelled; a transaction in progress is still finished."""
        try:
            while True:
                await self._arrived.wait()
                batch = self._next()
                if batch:
                    await asyncio.shield(self._write(batch))
                else:
                    self._arrived.clear()
        finally:
            for waiting in self._queue:
                if not waiting.done.done():
                    waiting.done.set_exception(unavailable("the facade shuts down; send it again"))

    def _next(self) -> list[QueuedReport]:
        batch: list[QueuedReport] = []
        count = 0
        while self._queue and count < TRANSACTION_EVENTS:
            batch.append(self._queue.popleft())
            count += weight(batch[-1])
        return batch

    async def _write(self, batch: list[QueuedReport]) -> None:
        """Write reports together; when that fails, each on its own."""
        try:
            outcomes = await asyncio.to_thread(
                self._writer.write, [waiting.delivery for waiting in batch]
            )
        except SQLAlchemyError as error:
            if is_away(error):
                for waiting in batch:
                    refuse(waiting)
                return
            logger.exception("%d reports of usage could not be written together", len(batch))
            for waiting in batch:
                await self._write_alone(waiting)
        else:
            for waiting, outcome in zip(batch, outcomes, strict=True):
                if not waiting.done.done():
                    waiting.done.set_result(outcome)
        finally:
            self._count -= sum(map(weight, batch))

    async def _write_alone(self, waiting: QueuedReport) -> None:
        try:
            (outcome,) = await asyncio.to_thread(self._writer.write, [waiting.delivery])
        except SQLAlchemyError:
            logger.exception("a report of %s could not be written", waiting.delivery.reporter)
            refuse(waiting)
        else:
            if not waiting.done.done():
                waiting.done.set_result(outcome)


def refuse(waiting: QueuedReport) -> None:
    """Respond that a report was not written."""
    if not waiting.done.done():
        waiting.done.set_exception(
            unavailable("the ledger cannot be written at present; send it again")
        )


def verified(sent: SignedReport, received_us: int, body: bytes) -> VerifiedReport:
    """Verify a report, and judge its events.

    Parameters
    ----------
    received_us
        When it was received, in microseconds.

    Raises
    ------
    ApiError
        400 when it is malformed, 401 when its signature is wrong.
    """
    signed = sent.signature
    digest = signed.check(sent.secret, "POST", PATH, body)
    report = read_report(body)
    if report.delivery_id != signed.nonce:
        raise bad_request("delivery_id", "delivery_id is not the nonce that was signed")
    events, rejected = judge_events(report, received_us)
    return VerifiedReport(sent.reporter, signed.nonce, digest, received_us, events, rejected)


def weight(waiting: QueuedReport) -> int:
    """Return how many events a report counts as in the queue; an empty one is not free."""
    return max(1, len(waiting.delivery.events) + len(waiting.delivery.rejected))
