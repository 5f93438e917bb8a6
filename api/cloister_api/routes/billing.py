"""/api/billing (spec 10, 27)."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from cloister_api.metering.store import RunTime
from cloister_api.routes.dependencies import context_of, principal_of
from cloister_api.routes.parameters import OptionalTime, Time, window_of
from cloister_api.routes.responses import responses
from cloister_api.routes.route_classes import StrictRoute
from cloister_api.schemas.account_responses import (
    BreakdownResponse,
    KeyUsageResponse,
    RunTimeRecord,
    RunTimeResponse,
    TimeSeriesResponse,
    TransactionsResponse,
    UsageResponse,
)
from cloister_api.schemas.keys import KeyUsageRequest
from cloister_api.usage.breakdown import BreakdownBy
from cloister_api.usage.windows import Window, span_of
from cloister_api.wire.json_response import JsonResponse

__all__ = ["router", "run_time_record"]

router = APIRouter(prefix="/api/billing", tags=["billing"], route_class=StrictRoute)

By = Annotated[BreakdownBy, Query(description="What it is grouped by.")]
EVER = 2**40
"""Unix second after all others."""
MICROSECONDS = 1_000_000
"""Of a second."""


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


@router.get("/breakdown", responses=responses(400))
async def get_breakdown(
    request: Request, time: Time, by: By = BreakdownBy.KEY
) -> JsonResponse[BreakdownResponse]:
    """Return what the organization used and what it cost over time, by key or model."""
    context, principal = context_of(request), principal_of(request)
    breakdown = await context.accounts.breakdowns.of(
        principal.organization_id, window_of(time), by, context.clock()
    )
    return JsonResponse(breakdown)


@router.get("/runtime", responses=responses(400))
async def get_run_time(
    request: Request, time: OptionalTime = None
) -> JsonResponse[RunTimeResponse]:
    """Return how long the containers of the organization served."""
    context, principal = context_of(request), principal_of(request)
    window = optional_window(time)
    begin, end = 0, EVER
    if window is not None:
        span = span_of(window, context.clock())
        begin, end = span.begin, span.end
    found = await context.accounts.runtime.of(principal.organization_id, begin, end)
    records = [run_time_record(each) for each in found]
    return JsonResponse(RunTimeResponse(metering=context.installation.metering, containers=records))


def run_time_record(served: RunTime) -> RunTimeRecord:
    """Return the record of the run time of a container with one size."""
    return RunTimeRecord(
        container_id=served.container,
        name=served.name,
        cpus=served.cpus,
        memory_mb=served.memory_mb,
        gpus=served.gpus,
        seconds=served.microseconds / MICROSECONDS,
    )


@router.get("/transactions", responses=responses(502))
async def list_transactions(request: Request) -> JsonResponse[TransactionsResponse]:
    """Return the organization's invoices and charges, newest first."""
    organization = principal_of(request).organization
    transactions = await context_of(request).payments.transactions(organization)
    return JsonResponse(TransactionsResponse(transactions=transactions))
