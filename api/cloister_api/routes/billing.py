"""/api/billing (spec 10, 27)."""

from fastapi import APIRouter, Request

from cloister_api.routes.dependencies import context_of, principal_of
from cloister_api.routes.parameters import OptionalTime, Time, window_of
from cloister_api.routes.responses import responses
from cloister_api.routes.route_classes import StrictRoute
from cloister_api.schemas.account_responses import (
    KeyUsageResponse,
    TimeSeriesResponse,
    TransactionsResponse,
    UsageResponse,
)
from cloister_api.schemas.keys import KeyUsageRequest
from cloister_api.usage.windows import Window
from cloister_api.wire.json_response import JsonResponse

__all__ = ["router"]

router = APIRouter(prefix="/api/billing", tags=["billing"], route_class=StrictRoute)


def optional_window(time: str | None) -> Window | None:
    """Return the window that a query names; None = all time.

    Raises
    ------
    ApiError
        400 when there is no such window.
    """
    return None if time is None else window_of(time)


@router.get("/usage", responses=responses(400))
async def get_usage(request: Request, time: OptionalTime = None) -> JsonResponse[UsageResponse]:
    """Return what the organization used, by key and model."""
    context, principal = context_of(request), principal_of(request)
    usage = await context.accounts.usage.aggregated(
        principal.organization_id, optional_window(time), context.clock()
    )
    return JsonResponse(usage)


@router.post("/usage/key", responses=responses(404))
async def get_key_usage(
    request: Request, body: KeyUsageRequest, time: OptionalTime = None
) -> JsonResponse[KeyUsageResponse]:
    """Return what one key used."""
    context, principal = context_of(request), principal_of(request)
    window = optional_window(time)
    key = await context.accounts.keys.find(principal, body.key)
    usage = await context.accounts.usage.of_key(
        principal.organization_id, key.id, window, context.clock()
    )
    return JsonResponse(usage)


@router.get("/time-series", responses=responses(400))
async def get_time_series(request: Request, time: Time) -> JsonResponse[TimeSeriesResponse]:
    """Return what the organization used over time, by model."""
    context, principal = context_of(request), principal_of(request)
    series = await context.accounts.usage.series(
        principal.organization_id, window_of(time), context.clock()
    )
    return JsonResponse(series)


@router.get("/transactions", responses=responses(502))
async def list_transactions(request: Request) -> JsonResponse[TransactionsResponse]:
    """Return the organization's invoices and charges, newest first."""
    organization = principal_of(request).organization
    transactions = await context_of(request).payments.transactions(organization)
    return JsonResponse(TransactionsResponse(transactions=transactions))
