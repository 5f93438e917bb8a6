"""What an organization pays for, by its subscriptions."""

from collections.abc import Iterable

from cloister_api.payments.records import Subscription
from cloister_api.payments.settings import StripeSettings
from cloister_crds.kinds.organization import Billing

__all__ = ["billing_by"]

ACTIVE = frozenset({"active", "trialing", "past_due"})
"""Statuses of a subscription that counts. past_due: a payment failed and is tried again; when
Stripe gives up, the subscription becomes canceled or unpaid, as its account is set up."""


def billing_by(
    subscriptions: Iterable[Subscription], customer: str, settings: StripeSettings
) -> Billing:
    """Return what a customer pays for.

    Parameters
    ----------
    subscriptions
        The customer's subscriptions.
    customer
        The customer.
    settings
        They define what products mean.
    """
    products = {
        item.price.product
        for each in subscriptions
        if each.status in ACTIVE
        for item in each.items.data
    }
    return Billing(
        container_subscription=not products.isdisjoint(settings.container_products),
        token_billing=not products.isdisjoint(settings.token_products),
        customer_id=customer,
    )
