"""Stripe's webhooks: their signature, and whose subscriptions they are about.

This module is imported only where Stripe is set up, because of the SDK.
"""

import re
from datetime import datetime

import msgspec
import stripe

from cloister_api.errors import ApiError, bad_request, too_deep
from cloister_api.wire import DepthError, decode

TOLERANCE_SECONDS = 300
"""Greatest age of a signature; Stripe signs every attempt of a delivery again."""
SIGNED_AT = re.compile(r"(?:^|,)t=([0-9]{1,12})(?:,|$)")
SIGNATURE = re.compile(r"(?:^|,)v1=[0-9a-f]{64}(?:,|$)")
BAD_SIGNATURE = ApiError(
    401,
    "UNAUTHORIZED",
    "the signature is missing, wrong or older than 5 minutes; compare stripe.webhookSecretFile "
    "with the secret of this endpoint in Stripe's dashboard, and the clock of this machine",
)


class ExpandedObject(msgspec.Struct):
    """An object of which only the identifier counts."""

    id: str


class EventObject(msgspec.Struct):
    """The object of an event."""

    id: str
    customer: str | ExpandedObject | None = None


class EventData(msgspec.Struct):
    """The data of an event."""

    object: EventObject


class StripeEvent(msgspec.Struct):
    """An event."""

    data: EventData


class EventType(msgspec.Struct):
    """The type of an event."""

    type: str


TYPE = msgspec.json.Decoder(EventType)
EVENT = msgspec.json.Decoder(StripeEvent)


def check_header(signature: str, now: datetime) -> None:
    """Refuse a webhook whose signature cannot be right, whatever its body is.

    Raises
    ------
    ApiError
        401 when the signature is missing, malformed or too old.
    """
    at = SIGNED_AT.search(signature)
    if at is None or not SIGNATURE.search(signature):
        raise BAD_SIGNATURE
    if int(at[1]) < now.timestamp() - TOLERANCE_SECONDS:
        raise BAD_SIGNATURE


def verify(body: bytes, signature: str, secret: str) -> None:
    """Refuse a webhook that Stripe did not sign a short time ago (Stripe, "Webhook signatures").

    Parameters
    ----------
    body
        The body as received; it is what is signed.

    Raises
    ------
    ApiError
        401 when the signature is missing, wrong or too old.
    """
    try:
        stripe.WebhookSignature.verify_header(body, signature, secret, TOLERANCE_SECONDS)
    except (stripe.SignatureVerificationError, ValueError, TypeError) as error:
        # ValueError: the body is not text. TypeError: the header has other than ASCII.
        raise BAD_SIGNATURE from error


def customer_of(body: bytes) -> str | None:
    """Return the customer whose subscriptions may have changed; None if there is none.

    Raises
    ------
    ApiError
        400 when the body is not an event.
    """
    try:
        kind = decode(TYPE, body).type
        if kind != "customer.deleted" and not kind.startswith("customer.subscription."):
            return None
        about = decode(EVENT, body).data.object
    except DepthError as error:
        raise too_deep(error) from error
    except msgspec.DecodeError as error:
        raise bad_request("", f"the body is not an event of Stripe: {error}") from error
    if kind == "customer.deleted":
        return about.id
    return about.customer.id if isinstance(about.customer, ExpandedObject) else about.customer
