"""/api/billing (spec 10, 27) and /api/internal/usage-reports (spec 26.5, 26.8)."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from cloister_api.http.metrics import HttpMetrics
from cloister_api.metering.store import RunTime
from cloister_api.routes.dependencies import StrictRoute, TypedRoute, context_of, principal_of
from cloister_api.routes.parameters import OptionalTime, Time, json_body, responses, window_of
from cloister_api.schemas.accounts import (
    BreakdownResponse,
    KeyUsageResponse,
    RejectedUsageEvent,
    RunTimeRecord,
    RunTimeResponse,
    TimeSeriesResponse,
    TransactionsResponse,
    UsageReportResponse,
    UsageResponse,
)
from cloister_api.schemas.keys import KeyUsageRequest
from cloister_api.usage.ingest import PATH, SignedReport
from cloister_api.usage.queries import BreakdownBy
from cloister_api.usage.windows import Window, span_of
from cloister_api.wire import JsonResponse

router = APIRouter(prefix="/api/billing", tags=["billing"], route_class=StrictRoute)

By = Annotated[BreakdownBy, Query(description="What it is grouped by.")]
EVER = 2**40
"""Unix second after all others."""
MICROSECONDS = 1_000_000
"""Of a second."""


def optional_window(time: str | None) -> Window | None:
    """Return the window that a query names; None means all time.

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


reports_router = APIRouter(tags=["usage"], route_class=TypedRoute)


@reports_router.post(
    PATH,
    responses=responses(400, 401),
    openapi_extra={
        "security": [{"reporterSignature": []}],
        **json_body("Report", "Events that are sent together."),
    },
)
async def report_usage(request: Request) -> JsonResponse[UsageReportResponse]:
    """Take a report; the response names the events that were not taken."""
    report: SignedReport = request.scope["state"]["caller"]
    receipt = await context_of(request).accounts.ingest.accept(report, await request.body())
    metrics: HttpMetrics = request.app.state.metrics
    metrics.usage_reported(
        report.reporter,
        accepted=receipt.accepted,
        duplicate=receipt.duplicates,
        rejected=len(receipt.rejected),
    )
    rejected = [
        RejectedUsageEvent(index=each.index, reason=each.reason) for each in receipt.rejected
    ]
    return JsonResponse(
        UsageReportResponse(
            accepted=receipt.accepted, duplicates=receipt.duplicates, rejected=rejected
        )
    )
