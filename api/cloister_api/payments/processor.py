"""Queries of Stripe by its SDK: the data of a customer, or why it cannot be read.

This module is imported only where Stripe is set up: the SDK costs start-up time and memory.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import stripe
from pydantic import BaseModel, ValidationError

from cloister_api.errors import ApiError, unavailable
from cloister_api.payments.settings import StripeSettings
from cloister_api.payments.transactions import Charge, Invoice, InvoicePayment, Subscription

logger = logging.getLogger(__name__)

Record = TypeVar("Record", Invoice, InvoicePayment, Charge, Subscription)

PAGE = 100
"""Objects of one page; Stripe's maximum."""
RETRIES = 1
"""How often the SDK retries a failed request, within the same time."""
SERVER_ERROR = 500
"""Least status that is the server's fault."""
DOWN = "Stripe, the payment processor, does not respond at present; try again"
NOT_UNDERSTOOD = ApiError(
    502,
    "BAD_GATEWAY",
    "the response of Stripe, the payment processor, could not be understood; the administrator of "
    "this installation finds the reason in the log of the facade",
)
REFUSED = ApiError(
    502,
    "BAD_GATEWAY",
    "Stripe, the payment processor, refused the request; the administrator of this installation "
    "finds the reason in the log of the facade",
)


def unknown_customer(customer: str) -> ApiError:
    """Build a 502 about a customer that Stripe does not have."""
    return ApiError(
        502,
        "BAD_GATEWAY",
        f"Stripe has no customer {customer}; the administrator of this installation corrects "
        "spec.billing.customerID of the Organization, or the key of the facade (test or live)",
    )


class StripeReader:
    """Reads the data of customers from Stripe."""

    def __init__(self, settings: StripeSettings, key: str) -> None:
        # The SDK must not report this machine and its requests to its vendor.
        stripe.enable_telemetry = False
        self._within = settings.timeout_seconds
        self._http = stripe.HTTPXClient(timeout=settings.timeout_seconds)
        self._client = stripe.StripeClient(
            key,
            base_addresses={"api": settings.api_address},
            http_client=self._http,
            max_network_retries=RETRIES,
        ).v1

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.close_async()  # type: ignore[no-untyped-call]  # the SDK's

    async def invoices(
        self, customer: str
    ) -> tuple[list[Invoice], dict[str, list[InvoicePayment]]]:
        """Read all invoices of a customer, and their payments by the invoice's identifier.

        Raises
        ------
        ApiError
            503 when Stripe does not respond, 502 when it refuses.
        """
        async with self._request(customer):
            found = await self._all(
                Invoice,
                self._client.invoices.list_async,
                {"customer": customer, "expand": ["data.payments"]},
            )
            payments = {each.id: list(each.payments.data) for each in found}
            for each in found:
                if each.payments.has_more:
                    payments[each.id] = await self._all(
                        InvoicePayment,
                        self._client.invoice_payments.list_async,
                        {"invoice": each.id},
                    )
        return [each for each in found if each.customer == customer], payments

    async def charges(self, customer: str) -> list[Charge]:
        """Read all charges of a customer.

        Raises
        ------
        ApiError
            503 when Stripe does not respond, 502 when it refuses.
        """
        async with self._request(customer):
            found = await self._all(Charge, self._client.charges.list_async, {"customer": customer})
        return [each for each in found if each.customer == customer]

    async def subscriptions(self, customer: str) -> list[Subscription]:
        """Read the subscriptions of a customer that were not canceled.

        Raises
        ------
        ApiError
            503 when Stripe does not respond, 502 when it refuses.
        """
        async with self._request(customer):
            found = await self._all(
                Subscription, self._client.subscriptions.list_async, {"customer": customer}
            )
        return [each for each in found if each.customer == customer]

    async def _all(
        self,
        kind: type[Record],
        list_page: Callable[[Any], Awaitable[stripe.ListObject[Any]]],
        parameters: dict[str, Any],
    ) -> list[Record]:
        """Read every page of a list."""
        page = await list_page({"limit": PAGE, **parameters})
        return [read(kind, each) async for each in page.auto_paging_iter()]

    @asynccontextmanager
    async def _request(self, customer: str) -> AsyncIterator[None]:
        """Limit the time of a query, and translate its errors."""
        try:
            async with asyncio.timeout(self._within):
                yield
        except TimeoutError as error:
            logger.warning("Stripe did not respond within %s s", self._within)
            raise unavailable(DOWN) from error
        except stripe.StripeError as error:
            raise translated(error, customer) from error
        except ValidationError as error:
            problems = error.errors(include_url=False, include_input=False, include_context=False)
            logger.error("an object of Stripe has another form: %s", problems)  # noqa: TRY400 - complete
            raise NOT_UNDERSTOOD from error


def read(kind: type[Record], found: stripe.StripeObject) -> Record:
    """Read the fields that are used of an object.

    Raises
    ------
    ValidationError
        When a field is missing or of another kind.
    """
    assert issubclass(kind, BaseModel)
    return kind.model_validate(found.to_dict())


def translated(error: stripe.StripeError, customer: str) -> ApiError:
    """Translate an error of the SDK for the client, and log it.

    Its text may hold a part of the key, so that only kind, status, code and the identifier of the
    request are logged.
    """
    status, code = error.http_status, error.code
    kind, request = type(error).__name__, error.request_id
    logger.warning("Stripe: %s, status %s, code %s, request %s", kind, status, code, request)
    if isinstance(error, stripe.APIConnectionError | stripe.RateLimitError):
        return unavailable(DOWN)
    if code == "resource_missing":
        return unknown_customer(customer)
    if isinstance(error, stripe.APIError):
        return unavailable(DOWN) if (status or 0) >= SERVER_ERROR else NOT_UNDERSTOOD
    return REFUSED
