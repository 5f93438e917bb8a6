"""/api/billing (spec, "Billing and usage"; client contract, section 4)."""

from fastapi import APIRouter, Request, Response

from cloister_api.errors import bad_request
from cloister_api.routes.dependencies import answer, context_of, principal_of, window_of
from cloister_api.routes.responses import OptionalTime, says
from cloister_api.routes.strict import StrictRoute
from cloister_api.schemas.account_answers import KeyUsage, TimeSeries, Transactions, Usage
from cloister_api.schemas.keys import KeyUsageRequest
from cloister_api.usage.windows import WINDOWS, Window

__all__ = ["router"]

router = APIRouter(prefix="/api/billing", tags=["billing"], route_class=StrictRoute)


def optional_window(time: str | None) -> Window | None:
    """Answer the window that is asked for; None = all time.

    Raises
    ------
    ApiError
        400 when there is no such window.
    """
    return None if time is None else window_of(time)


@router.get("/usage", responses=says(Usage, 400))
async def get_usage(request: Request, time: OptionalTime = None) -> Response:
    """Answer what the organization used, by key and model."""
    context, principal = context_of(request), principal_of(request)
    organization = principal.organization_id
    found = await context.accounts.usage.aggregated(
        organization, optional_window(time), context.clock()
    )
    return answer(found)


@router.post("/usage/key", responses=says(KeyUsage, 404))
async def get_key_usage(
    request: Request, body: KeyUsageRequest, time: OptionalTime = None
) -> Response:
    """Answer what one key used."""
    context, principal = context_of(request), principal_of(request)
    window = optional_window(time)
    key = await context.accounts.keys.find(principal, body.key)
    organization = principal.organization_id
    return answer(
        await context.accounts.usage.of_key(organization, key.id, window, context.clock())
    )


@router.get("/time-series", responses=says(TimeSeries, 400))
async def get_time_series(request: Request, time: OptionalTime = None) -> Response:
    """Answer what the organization used over time, by model."""
    context, principal = context_of(request), principal_of(request)
    if time is None:
        raise bad_request(
            "time", f"time is missing; name one of {', '.join(WINDOWS)}", code="Missing"
        )
    window, organization = window_of(time), principal.organization_id
    return answer(await context.accounts.usage.series(organization, window, context.clock()))


@router.get("/transactions", responses=says(Transactions, 502))
async def list_transactions(request: Request) -> Response:
    """Answer the organization's invoices and charges, newest first."""
    organization = principal_of(request).organization
    return answer({"transactions": await context_of(request).payments.transactions(organization)})
