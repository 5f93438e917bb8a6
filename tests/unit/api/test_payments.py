"""What invoices, charges and subscriptions mean, and which secrets are taken."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cloister_api.payments.payments import billing_by
from cloister_api.payments.settings import PaymentsError, StripeSettings, read_secrets
from cloister_api.payments.transactions import (
    Charge,
    Invoice,
    InvoicePayment,
    Subscription,
    major_units,
    transactions,
)


def settings(**given: Any) -> StripeSettings:
    """Make settings."""
    document = {
        "secretKeyFile": "key",
        "containerProducts": ["prod_c", "prod_both"],
        "tokenProducts": ["prod_t", "prod_both"],
    }
    return StripeSettings.model_validate({**document, **given})


def invoice(name: str, created: int, **given: Any) -> Invoice:
    """Make an invoice."""
    fields = {"customer": "cus_1", "status": "paid", "total": 1999, "currency": "usd"}
    return Invoice.model_validate(
        {**fields, "id": name, "created": created, "amount_paid": 1999, **given}
    )


def charge(name: str, created: int, **given: Any) -> Charge:
    """Make a charge."""
    fields = {"customer": "cus_1", "status": "succeeded", "amount": 1999, "currency": "usd"}
    return Charge.model_validate({**fields, "id": name, "created": created, **given})


def paid_with(**payment: Any) -> InvoicePayment:
    """Make a payment of an invoice."""
    return InvoicePayment.model_validate({"payment": payment})


@pytest.mark.spec("27.8")
@pytest.mark.parametrize(
    ("amount", "currency", "want"),
    [
        (1999, "usd", 19.99),
        (1999, "jpy", 1999),
        (5124, "kwd", 5.124),
        (500, "ugx", 5),
        (500, "isk", 5),
        (0, "eur", 0),
        (29, "usd", 0.29),
        (100_000_000_001, "usd", 1_000_000_000.01),
    ],
)
def test_amounts_are_written_as_people_write_them(amount: int, currency: str, want: float) -> None:
    assert major_units(amount, currency) == want


def test_transactions_of_one_time_have_a_fixed_order() -> None:
    found = transactions([invoice("in_a", 5), invoice("in_b", 5)], [charge("ch_z", 4)], {})
    assert [each.id for each in found] == ["in_b", "in_a", "ch_z"]


@pytest.mark.spec("27.8")
def test_a_charge_belongs_to_its_invoice_by_intent_or_by_itself() -> None:
    charges = [
        charge("ch_1", 1, payment_intent="pi_1", status="failed"),
        charge("ch_2", 2, payment_intent={"id": "pi_1"}, amount_refunded=999),
        charge("ch_3", 3),
        charge("ch_4", 4, payment_intent="pi_4"),
    ]
    payments = {
        "in_1": [paid_with(payment_intent="pi_1")],
        "in_3": [paid_with(charge="ch_3"), paid_with(payment_intent=None)],
    }
    found = transactions([invoice("in_1", 9), invoice("in_3", 8)], charges, payments)
    assert [(each.id, each.status) for each in found] == [
        ("in_1", "partially_refunded"),
        ("in_3", "completed"),
        ("ch_4", "completed"),
    ]
    assert [list(each.model_dump()) for each in found[1:]] == [
        [*("id", "date", "type", "description", "amount", "status", "invoice_url")],
        [*("id", "date", "type", "description", "amount", "status")],
    ]


def test_an_invoice_of_zero_is_not_a_refund() -> None:
    (found,) = transactions([invoice("in_1", 1, total=0, amount_paid=0)], [], {})
    assert (found.amount, found.status, found.invoice_url) == (0, "completed", "")


@pytest.mark.parametrize(
    ("status", "counts"),
    [
        ("active", True),
        ("trialing", True),
        ("past_due", True),
        ("unpaid", False),
        ("paused", False),
        ("incomplete", False),
        ("incomplete_expired", False),
        ("canceled", False),
        ("a word of later", False),
    ],
)
def test_a_subscription_counts_by_its_status(status: str, *, counts: bool) -> None:
    items = {"data": [{"price": {"product": "prod_c"}}]}
    found = Subscription.model_validate({"customer": "cus_1", "status": status, "items": items})
    told = billing_by([found], "cus_1", settings())
    assert (told.container_subscription, told.token_billing) == (counts, False)
    assert told.customer_id == "cus_1"


@pytest.mark.parametrize(
    ("products", "containers", "tokens"),
    [
        ((), False, False),
        (("prod_c",), True, False),
        (("prod_x", "prod_t"), False, True),
        (("prod_both",), True, True),
    ],
)
def test_products_say_what_is_paid(
    products: tuple[str, ...], *, containers: bool, tokens: bool
) -> None:
    items = {"data": [{"price": {"product": name}} for name in products]}
    found = Subscription.model_validate({"customer": "cus_1", "status": "active", "items": items})
    told = billing_by([found], "cus_1", settings())
    assert (told.container_subscription, told.token_billing) == (containers, tokens)


def test_secrets_are_read_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("rk_made_up\n")
    (tmp_path / "hook").write_text("whsec_made_up")
    alone = read_secrets(settings().anchored(tmp_path))
    assert (alone.key, alone.webhook) == ("rk_made_up", None)
    both = read_secrets(settings(webhookSecretFile="hook").anchored(tmp_path))
    assert both.webhook == "whsec_made_up"
    assert "made_up" not in repr(both)


@pytest.mark.parametrize("content", [None, b"", b"pk_made_up", b"rk_made up", b"rk_\xff"])
def test_a_file_without_a_key_is_named_and_not_quoted(
    tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    with pytest.raises(PaymentsError) as caught:
        read_secrets(settings().anchored(tmp_path))
    message = str(caught.value)
    assert message.startswith(f"stripe.secretKeyFile: {tmp_path / 'key'}")
    assert "made" not in message.removeprefix(f"stripe.secretKeyFile: {tmp_path}")
    if content is not None:
        assert "sk_ or rk_" in message


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tokenProducts": []}, "at least 1 item"),
        ({"tokenProducts": ["a", "a"]}, "names a product twice"),
        ({"apiAddress": "api.stripe.com"}, "should match pattern"),
        ({"apiAddress": "https://api.stripe.com/v1"}, "should match pattern"),
        ({"timeoutSeconds": 0}, "greater than 0"),
        ({"secretKey": "rk_made_up"}, "Extra inputs"),
    ],
)
def test_settings_that_cannot_be_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        settings(**given)
