"""A report of usage and its events: what is accepted and what is rejected. Pure.

Source: spec 26.5 to 26.11. A malformed report is rejected as a whole; an event that breaks a rule
is rejected by its index, and the others are accepted. Unknown fields are ignored, because reporters
are a library that services update when they like, and take any 2xx for "counted".
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

import msgspec
from typing_extensions import override

from cloister_api.errors import ApiError, bad_request, too_deep
from cloister_api.wire import DepthError, decode

MAX_EVENTS = 1_000
"""Events in one report."""
DAYS_BACK = 90
"""How old an event may be."""
BACK_US = DAYS_BACK * 86_400_000_000
AHEAD_US = 600_000_000
"""How far ahead the clock of a reporter may be, in microseconds."""
LARGEST = 1_000_000_000
"""Largest quantity of one meter in one event."""
ATTRIBUTE_BYTES = 4_096
"""Largest attributes that are kept in addition to the model."""

Word = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Identifier = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Quantity = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]


ABSENT = msgspec.Raw(b"")
ABSENT_OR_NULL = (b"", b"null")


class Operation(msgspec.Struct, gc=False):
    """The operation."""

    service: Word
    """Service, such as ``router``."""
    name: Word
    """Operation, such as ``model_request``."""


class Meter(msgspec.Struct, gc=False):
    """A measured quantity."""

    name: Word
    """Meter, such as ``input_tokens``."""
    quantity: Quantity
    """How much."""


class UsageEvent(msgspec.Struct, gc=False):
    """An event as it is reported."""

    event_id: Identifier
    """Identifier by which it is counted once."""
    occurred_at: Moment
    """When it happened."""
    operation: Operation
    """The operation."""
    meters: Annotated[list[Meter], msgspec.Meta(max_length=32)] | None
    """Measured quantities; None if there is none, as Go writes an empty list."""
    request_id: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    """Identifier of the request; None if not reported."""
    api_key: Annotated[str, msgspec.Meta(max_length=500)] | None = None
    """Regular key that is charged; None if there is none, the event stays unattributed."""
    customer_requests: Quantity | None = None
    """Requests of the customer; an inner request counts 0. None: see `requests_of`."""
    attributes: msgspec.Raw = ABSENT
    """Object with ``model`` and other attributes; empty and ``null`` = none."""
    reporter: msgspec.Raw = ABSENT
    """Who reports, in events of the first generation of reporters; empty and ``null`` = none."""


class Attributes(msgspec.Struct, gc=False):
    """The attributes that are read; the rest is kept as received."""

    model: Annotated[str, msgspec.Meta(max_length=253)] = ""
    """Model; empty if there is none."""


class UsageReport(msgspec.Struct):
    """A report: events that were sent together."""

    delivery_id: Identifier
    """Identifier of the delivery, the nonce of its signature."""
    events: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MAX_EVENTS)] | None
    """Events, not validated yet; None if there is none, as Go writes an empty list."""


@dataclass(frozen=True, slots=True)
class RejectedEvent:
    """An event that was not accepted."""

    index: int
    """Its index in the report."""
    reason: str
    """What is wrong."""
    event: bytes = field(repr=False)
    """The event as received; it may name a key."""


REPORTS = msgspec.json.Decoder(UsageReport)
EVENTS = msgspec.json.Decoder(UsageEvent)
ATTRIBUTES = msgspec.json.Decoder(Attributes)


def read_report(body: bytes) -> UsageReport:
    """Read a report without its events.

    Raises
    ------
    ApiError
        400 when it is malformed.
    """
    try:
        report = decode(REPORTS, body)
    except DepthError as error:
        raise too_deep(error) from error
    except msgspec.ValidationError as error:
        raise bad_request("", f"the report does not have its form: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(400, "BAD_REQUEST", "the body is not JSON") from error
    if "\x00" in report.delivery_id:
        raise bad_request("delivery_id", "delivery_id holds the character NUL")
    return report


class CountedEvent(msgspec.Struct, gc=False):
    """An accepted event, in the form in which it is counted."""

    event_id: str
    """Identifier by which it is counted once."""
    at: int
    """When it happened, in microseconds."""
    service: str
    """Service of the operation."""
    operation: str
    """Operation."""
    model: str
    """Model; empty if there is none."""
    api_key: str | None
    """Key that is charged, a secret; None if there is none."""
    tokens: tuple[int, int, int]
    """Input, output and cached input tokens."""
    requests: int
    """Requests of the customer."""
    others: dict[str, int] | None
    """Quantities of other meters; None if there is none."""
    request_id: str | None
    """Identifier of the request; None if not reported."""
    attributes: str | None
    """Attributes as received, JSON; None if there is none, or too large to keep."""

    @override
    def __repr__(self) -> str:
        """Return a text without the key."""
        return f"CountedEvent({self.event_id!r})"


class RefusedError(Exception):
    """An event is not accepted; the message has the reason."""


def judge_events(
    report: UsageReport, now_us: int
) -> tuple[list[CountedEvent], list[RejectedEvent]]:
    """Validate the events of a report.

    Parameters
    ----------
    now_us
        Present time in microseconds.
    """
    taken: list[CountedEvent] = []
    refused: list[RejectedEvent] = []
    read_event = EVENTS.decode
    for index, raw in enumerate(report.events or ()):
        try:
            taken.append(counted(read_event(raw), now_us))
        except (msgspec.MsgspecError, RefusedError, UnicodeDecodeError, RecursionError) as error:
            refused.append(RejectedEvent(index, str(error), bytes(raw)))
    return taken, refused


def counted(event: UsageEvent, now_us: int) -> CountedEvent:
    """Return an event in the form in which it is counted.

    Raises
    ------
    RefusedError, msgspec.MsgspecError
        When it breaks a rule.
    """
    at = round(event.occurred_at.timestamp() * 1_000_000)
    if at < now_us - BACK_US:
        raise RefusedError(f"occurred_at is more than {DAYS_BACK} days ago")
    if at > now_us + AHEAD_US:
        raise RefusedError("occurred_at is more than 10 minutes ahead; set the reporter's clock")
    tokens, others = quantities(event.meters or [])
    model, kept = "", None
    attributes = bytes(event.attributes)
    if attributes not in ABSENT_OR_NULL:
        model = ATTRIBUTES.decode(attributes).model
        if len(attributes) <= ATTRIBUTE_BYTES:
            kept = attributes.decode()
    service, name = event.operation.service, event.operation.name
    if "\x00" in f"{service}{name}{model}{event.request_id}":
        raise RefusedError("operation, model and request_id must not hold the character NUL")
    return CountedEvent(
        event.event_id,
        at,
        service,
        name,
        model,
        event.api_key,
        tokens,
        requests_of(event),
        others,
        event.request_id,
        kept,
    )


def requests_of(event: UsageEvent) -> int:
    """Return how many requests of a customer an event stands for.

    Go leaves a 0 out. Reporters of the first generation had no such field: each of their events is
    a request. They named themselves in every event, by which they are recognized (spec 26.11).
    """
    if event.customer_requests is not None:
        return event.customer_requests
    return 0 if bytes(event.reporter) in ABSENT_OR_NULL else 1


def quantities(meters: list[Meter]) -> tuple[tuple[int, int, int], dict[str, int] | None]:
    """Return the tokens and the quantities of other meters.

    Raises
    ------
    RefusedError
        When a meter appears twice, or more tokens are cached than input.
    """
    found: dict[str, int] = {}
    for meter in meters:
        if meter.name in found:
            raise RefusedError(f"the meter {meter.name} appears twice")
        found[meter.name] = meter.quantity
    given = found.pop("input_tokens", 0)
    made = found.pop("output_tokens", 0)
    cached = found.pop("cached_input_tokens", 0)
    if cached > given:
        raise RefusedError(
            "cached_input_tokens are more than input_tokens, of which they are a part"
        )
    return (given, made, cached), found or None
