"""/api/internal/usage-reports: usage as reporters sign it (spec 26.5, 26.8)."""

from fastapi import APIRouter, Request

from cloister_api.http.metrics import HttpMetrics
from cloister_api.routes.dependencies import context_of
from cloister_api.routes.responses import json_body, responses
from cloister_api.routes.route_classes import TypedRoute
from cloister_api.schemas.account_responses import RejectedUsageEvent, UsageReportResponse
from cloister_api.usage.ingest import PATH, SignedReport
from cloister_api.wire.json_response import JsonResponse

__all__ = ["router"]

router = APIRouter(tags=["usage"], route_class=TypedRoute)


@router.post(
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
