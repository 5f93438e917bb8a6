"""Invoices and charges of Stripe as one history, newest first (spec 10.7, 27.8)."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from cloister_api.schemas.accounts import Transaction


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
    """Payment intent; None if there is none."""
    charge: Reference | None = None
    """Charge, where it has no payment intent; None if it has one."""


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
    """Payment intent; None if there is none."""


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


ZERO_DECIMAL = frozenset(
    (
        *("bif", "clp", "djf", "gnf", "jpy", "kmf", "krw", "mga"),
        *("pyg", "rwf", "vnd", "vuv", "xaf", "xof", "xpf"),
    )
)
"""Currencies whose amounts are in whole units (Stripe, "Currencies"). ISK and UGX are not among
them: they have no smaller unit, yet their amounts are in hundredths."""
THREE_DECIMAL = frozenset(("bhd", "jod", "kwd", "omr", "tnd"))
"""Currencies whose amounts are in thousandths (the same page)."""
COMPLETED = "completed"
WORDS = {"paid": COMPLETED, "succeeded": COMPLETED}
"""Statuses of Stripe that have another name here; others stay as they are."""


def major_units(amount: int, currency: str) -> int | float:
    """Return an amount as people write it.

    Parameters
    ----------
    amount
        Amount in the smallest unit.
    currency
        Currency in lowercase letters.
    """
    if currency in ZERO_DECIMAL:
        return amount
    return amount / (1000 if currency in THREE_DECIMAL else 100)


def transactions(
    invoices: Iterable[Invoice],
    charges: Iterable[Charge],
    payments: Mapping[str, Sequence[InvoicePayment]],
) -> list[Transaction]:
    """Merge invoices and charges.

    A charge that pays an invoice, or tried to, is part of it and not listed on its own. Drafts of
    invoices are not transactions.
    """
    by_payment: dict[str, list[Charge]] = {}
    unpaired: dict[str, Charge] = {}
    for charge in charges:
        unpaired[charge.id] = charge
        for name in (charge.id, charge.payment_intent):
            if name is not None:
                by_payment.setdefault(name, []).append(charge)
    listed = []
    for invoice in invoices:
        paying = {
            charge.id: charge
            for each in payments.get(invoice.id, ())
            for name in (each.payment.payment_intent, each.payment.charge)
            for charge in by_payment.get(name or "", ())
        }
        for name in paying:
            unpaired.pop(name, None)
        if invoice.status != "draft":
            refunded = sum(charge.amount_refunded for charge in paying.values())
            listed.append((invoice.created, invoice_record(invoice, refunded)))
    listed += [(charge.created, charge_record(charge)) for charge in unpaired.values()]
    listed.sort(key=lambda each: (each[0], each[1].id), reverse=True)
    return [record for _, record in listed]


def invoice_record(invoice: Invoice, refunded: int) -> Transaction:
    """Return an invoice as a transaction."""
    status = WORDS.get(invoice.status, invoice.status)
    numbered = f"Invoice {invoice.number}" if invoice.number else "Invoice"
    return Transaction(
        id=invoice.id,
        date=timestamp(invoice.created),
        type="Invoice",
        description=invoice.description or numbered,
        amount=major_units(invoice.total, invoice.currency),
        status=after_refunds(status, invoice.amount_paid, refunded),
        invoice_url=invoice.hosted_invoice_url or invoice.invoice_pdf or "",
    )


def charge_record(charge: Charge) -> Transaction:
    """Return a charge as a transaction."""
    status = WORDS.get(charge.status, charge.status)
    if status == COMPLETED and not charge.captured:
        status = "pending"
    return Transaction(
        id=charge.id,
        date=timestamp(charge.created),
        type="Charge",
        description=charge.description or "Charge",
        amount=major_units(charge.amount, charge.currency),
        status=after_refunds(status, charge.amount, charge.amount_refunded),
    )


def after_refunds(status: str, paid: int, refunded: int) -> str:
    """Return the status after refunds; the amount stays what was paid."""
    if status != COMPLETED or refunded <= 0:
        return status
    return "refunded" if refunded >= paid else "partially_refunded"


def timestamp(seconds: int) -> str:
    """Write a time as RFC 3339."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
