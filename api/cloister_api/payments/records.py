"""The fields of Stripe's objects that are used.

The fields are those of the API version that the SDK pins. Since 2025-03-31 an invoice does not name
its charge nor a charge its invoice: invoice payments join the two.
"""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

__all__ = ["Charge", "Invoice", "InvoicePayment", "Payment", "Subscription"]


def identifier(value: object) -> object:
    """Return the identifier of what may be an identifier or the object itself ("expandable")."""
    return value.get("id") if isinstance(value, dict) else value


Reference = Annotated[str, BeforeValidator(identifier)]
"""Identifier of another object."""


class StripeObject(BaseModel):
    """Base of what is read of Stripe's objects; most installations read none."""

    model_config = ConfigDict(defer_build=True)


class Payment(StripeObject):
    """The payment intent or charge behind a payment of an invoice."""

    payment_intent: Reference | None = None
    """Payment intent; None = there is none."""
    charge: Reference | None = None
    """Charge, where it has no payment intent; None = it has one."""


class InvoicePayment(StripeObject):
    """A payment, or an attempt of one, of an invoice."""

    payment: Payment
    """The payment."""


class PaymentList(StripeObject):
    """The payments that are included in an invoice."""

    data: tuple[InvoicePayment, ...] = ()
    """The first of them."""
    has_more: bool = False
    """Whether there are others, on further pages."""


class Invoice(StripeObject):
    """An invoice."""

    id: str
    """Identifier."""
    customer: Reference
    """Whose it is."""
    created: int
    """When it was created, in seconds since 1970."""
    status: str
    """draft, open, paid, uncollectible or void."""
    total: int
    """Amount in the smallest unit of the currency."""
    amount_paid: int = 0
    """Amount that was paid, in the same unit."""
    currency: str
    """Currency, three lowercase letters."""
    description: str | None = None
    """Text that the seller wrote."""
    number: str | None = None
    """Number that the customer sees."""
    hosted_invoice_url: str | None = None
    """Page with the invoice."""
    invoice_pdf: str | None = None
    """The same as a document."""
    payments: PaymentList = Field(default_factory=PaymentList)
    """How it was paid."""


class Charge(StripeObject):
    """A charge."""

    id: str
    """Identifier."""
    customer: Reference
    """Who was charged."""
    created: int
    """When it was created, in seconds since 1970."""
    status: str
    """succeeded, pending or failed."""
    amount: int
    """Amount in the smallest unit of the currency."""
    amount_refunded: int = 0
    """Amount that was refunded, in the same unit."""
    captured: bool = True
    """False = the money is only held."""
    currency: str
    """Currency, three lowercase letters."""
    description: str | None = None
    """Text that the seller wrote."""
    payment_intent: Reference | None = None
    """Payment intent; None = there is none."""


class StripePrice(StripeObject):
    """A price of Stripe."""

    product: Reference
    """Its product."""


class Item(StripeObject):
    """A part of a subscription."""

    price: StripePrice
    """Its price."""


class ItemList(StripeObject):
    """The items of a subscription; Stripe allows no more than it includes (20)."""

    data: tuple[Item, ...]
    """All of them."""


class Subscription(StripeObject):
    """A subscription."""

    customer: Reference
    """Whose it is."""
    status: str
    """incomplete, incomplete_expired, trialing, active, past_due, canceled, unpaid or paused."""
    items: ItemList
    """The subscribed items."""
