"""Stripe for the facade: subscriptions, histories for administrators, statuses of Organizations."""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError

from cloister_api.errors import ApiError, unavailable
from cloister_api.ledger.audit import BEGUN, AuditRow, AuditTrail
from cloister_api.payments.settings import StripeSecrets, StripeSettings, read_secrets
from cloister_api.payments.transactions import Subscription, transactions
from cloister_api.schemas.accounts import Transaction
from cloister_clients.clock import Clock
from cloister_clients.foreign_json import parse_apart
from cloister_clients.kube import KubeClient, KubeError, NotFound, Reflector
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Organization
from cloister_crds.kinds.organization import Billing

ACTIVE = frozenset({"active", "trialing", "past_due"})
"""Statuses of a subscription that counts. past_due: a payment failed and is tried again; when
Stripe gives up, the subscription becomes canceled or unpaid, as its account is set up."""


def billing_by(
    subscriptions: Iterable[Subscription], customer: str, settings: StripeSettings
) -> Billing:
    """Return what a customer pays for."""
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


if TYPE_CHECKING:
    from cloister_api.payments.processor import StripeReader

logger = logging.getLogger(__name__)

RETRY_SECONDS = 60.0
"""Seconds until the retry when subscriptions could not be read."""
ATTEMPTS = 5
"""How often a sync may find that its write was outdated meanwhile."""
NOT_SET_UP = ApiError(
    503,
    "UNAVAILABLE",
    "the organization has a customerID but this installation has no access to its payment "
    "processor; the administrator of this installation sets stripe in the settings of the facade",
)
NO_WEBHOOKS = ApiError(
    404,
    "NOT_FOUND",
    "this installation accepts no webhooks of Stripe; the setting stripe.webhookSecretFile enables "
    "them",
)


@asynccontextmanager
async def open_payments(
    settings: StripeSettings | None,
    client: KubeClient,
    organizations: Reflector[Organization],
    audit: AuditTrail,
    clock: Clock,
) -> AsyncIterator["Payments"]:
    """Build the service, and close its connections at the end.

    Parameters
    ----------
    settings
        How Stripe is read; None if it is not.

    Raises
    ------
    PaymentsError
        When a secret cannot be used.
    """
    if settings is None:
        yield Payments(None, client, organizations, audit, clock)
        return
    from cloister_api.payments.processor import (  # noqa: PLC0415 - imports the SDK
        StripeReader,
    )

    secrets = read_secrets(settings)
    processor = StripeReader(settings, secrets.key)
    try:
        yield Payments((settings, secrets, processor), client, organizations, audit, clock)
    finally:
        await processor.aclose()


class Payments:
    """Histories and subscriptions of customers."""

    def __init__(
        self,
        processor: "tuple[StripeSettings, StripeSecrets, StripeReader] | None",
        client: KubeClient,
        organizations: Reflector[Organization],
        audit: AuditTrail,
        clock: Clock,
    ) -> None:
        self._stripe = processor
        self._client = client
        self._organizations = organizations
        self._audit = audit
        self._clock = clock

    @property
    def set_up(self) -> bool:
        """Whether there is a payment processor."""
        return self._stripe is not None

    async def transactions(self, organization: Organization) -> list[Transaction]:
        """Return the invoices and charges of an organization, newest first.

        Raises
        ------
        ApiError
            503 when Stripe is not set up or does not respond, 502 when it refuses.
        """
        customer = organization.spec.billing.customer_id
        if customer is None:
            return []
        if self._stripe is None:
            raise NOT_SET_UP
        _, _, processor = self._stripe
        (invoices, paid_by), charges = await asyncio.gather(
            processor.invoices(customer), processor.charges(customer)
        )
        return transactions(invoices, charges, paid_by)

    async def admit_webhook(self, headers: Mapping[str, str]) -> str:
        """Judge the headers of a webhook before its body is read, and return its signature.

        Parameters
        ----------
        headers
            Headers of the request, by names in lower case.

        Raises
        ------
        ApiError
            404 when webhooks are not accepted, 401 when the signature is missing, malformed or old.
        """
        if self._stripe is None or self._stripe[1].webhook is None:
            raise NO_WEBHOOKS
        from cloister_api.payments.webhook import check_header  # noqa: PLC0415 - imports the SDK

        signature = headers.get("stripe-signature", "")
        check_header(signature, self._clock())
        return signature

    async def accept_webhook(self, body: bytes, signature: str, request_id: str) -> int:
        """Sync the subscriptions that a webhook is about.

        Parameters
        ----------
        signature
            The header Stripe-Signature, from `admit_webhook`.

        Returns
        -------
        int
            How many Organizations were synced; 0 for other events and other customers.

        Raises
        ------
        ApiError
            401 for a wrong signature, 400 for a body that is not an event, 502 or 503 when Stripe
            cannot be queried: it delivers again then.
        KubeError
            When the cluster refuses or does not respond.
        """
        assert self._stripe is not None
        assert self._stripe[1].webhook is not None
        from cloister_api.payments.webhook import customer_of, verify  # noqa: PLC0415 - as above

        verify(body, signature, self._stripe[1].webhook)
        customer = await parse_apart(customer_of, body)
        if customer is None:
            return 0
        names = [name for name, held in self._customers().items() if held == customer]
        for name in names:
            await self._sync(name, customer, request_id)
        return len(names)

    async def run(self) -> None:
        """Sync every customer at the start, when it is named, and periodically.

        Runs until cancelled; does nothing without a payment processor.
        """
        assert self._stripe is not None
        refresh = self._stripe[0].refresh_seconds
        loop = asyncio.get_running_loop()
        due: dict[tuple[str, str], float] = {}
        while True:
            seen = self._organizations.version
            customers = set(self._customers().items())
            due = {each: at for each, at in due.items() if each in customers}
            for name, customer in sorted(customers):
                if due.get((name, customer), 0.0) <= loop.time():
                    synced = await self._try_sync(name, customer)
                    due[name, customer] = loop.time() + (refresh if synced else RETRY_SECONDS)
            wait = min(due.values(), default=loop.time() + refresh) - loop.time()
            await self._organizations.until(self._changed_since(seen), within=max(wait, 0.0))

    def _changed_since(self, seen: int) -> Callable[[], bool]:
        return lambda: self._organizations.version > seen

    def _customers(self) -> dict[str, str]:
        """Return the customer of each Organization that has one."""
        return {
            entry.name: customer
            for entry in self._organizations.all()
            if (customer := entry.value.spec.billing.customer_id) is not None
        }

    async def _try_sync(self, name: str, customer: str) -> bool:
        """Sync one customer, and return whether that succeeded."""
        try:
            await self._sync(name, customer, str(uuid.uuid4()))
        except (ApiError, KubeError) as error:
            logger.warning("subscriptions of organization %s were not read: %s", name, error)
            return False
        except SQLAlchemyError:  # the ledger may be locked or unreachable for a while
            logger.exception("subscriptions of organization %s were not written", name)
            return False
        return True

    async def _sync(self, name: str, customer: str, request_id: str) -> None:
        """Write what a customer pays for to the Organization's status.

        The written status is compared with Stripe once more: a concurrent sync may have read later
        and written earlier.

        Raises
        ------
        ApiError
            When Stripe does not respond or refuses, or changes faster than it can be written.
        KubeError
            When the cluster refuses or does not respond.
        """
        assert self._stripe is not None
        settings, _, processor = self._stripe
        for _ in range(ATTEMPTS):
            billing = billing_by(await processor.subscriptions(customer), customer, settings)
            try:
                present = Organization.read(await self._client.get(of(Organization), name))
            except NotFound:
                return
            if present.spec.billing.customer_id != customer or present.status.billing == billing:
                return
            number = await self._audit.add(
                AuditRow(
                    at=self._clock(),
                    request_id=request_id,
                    organization=name,
                    actor="Stripe",
                    key_id=None,
                    action="billing.change",
                    target=customer,
                    result=BEGUN,
                    organization_id=present.identifier,
                )
            )
            await self._client.merge_patch(
                of(Organization),
                name,
                {"status": {"billing": billing.wire()}},
                subresource="status",
            )
            await self._audit.complete(number, target=customer, result="200")
            logger.info(
                "organization %s: container subscription %s, token billing %s, by Stripe",
                name,
                billing.container_subscription,
                billing.token_billing,
            )
        raise unavailable("the subscriptions change faster than they can be written; try again")
