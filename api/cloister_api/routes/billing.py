"""/api/billing (spec, "Billing and usage"; client contract, section 4)."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from cloister_api.errors import ApiError, bad_request
from cloister_api.organizations import identifier
from cloister_api.routes.request import answer, context_of, principal_of
from cloister_api.schemas.envelope import Body
from cloister_api.usage.windows import WINDOWS, Window

__all__ = ["router"]

router = APIRouter(prefix="/api/billing", tags=["billing"])

Time = Annotated[str | None, Query()]


class OneKey(Body):
    """Body of POST /api/billing/usage/key."""

    key: str
    """Full value of the key."""


def window_of(time: str | None) -> Window | None:
    """Answer the window that is asked for; None = all time.

    Raises
    ------
    ApiError
        400 when there is no such window.
    """
    if time is None:
        return None
    if time not in WINDOWS:
        raise bad_request("time", f"time is one of {', '.join(WINDOWS)}")
    return WINDOWS[time]


@router.get("/usage")
async def aggregated(request: Request, time: Time = None) -> Response:
    """Answer what the organization used, by key and model."""
    context, principal = context_of(request), principal_of(request)
    organization = identifier(principal.organization)
    found = await context.accounts.usage.aggregated(organization, window_of(time), context.clock())
    return answer(found)


@router.post("/usage/key")
async def of_key(request: Request, body: OneKey, time: Time = None) -> Response:
    """Answer what one key used."""
    context, principal = context_of(request), principal_of(request)
    window = window_of(time)
    key = await context.accounts.keys.find(principal, body.key)
    organization = identifier(principal.organization)
    return answer(
        await context.accounts.usage.of_key(organization, key.id, window, context.clock())
    )


@router.get("/time-series")
async def series(request: Request, time: Time = None) -> Response:
    """Answer what the organization used over time, by model."""
    context, principal = context_of(request), principal_of(request)
    window = window_of(time)
    if window is None:
        raise bad_request(
            "time", f"time is missing; name one of {', '.join(WINDOWS)}", code="Missing"
        )
    organization = identifier(principal.organization)
    return answer(await context.accounts.usage.series(organization, window, context.clock()))


@router.get("/transactions")
async def transactions(request: Request) -> Response:
    """Answer the transactions of an organization without a payment processor's customer: none.

    Raises
    ------
    ApiError
        501 when it has a customer: reading from a processor is not built yet.
    """
    if principal_of(request).organization.spec.billing.customer_id is None:
        return answer({"transactions": []})
    raise ApiError(
        501,
        "NotSupportedYet",
        "transactions of an organization with a customerID are read from the payment processor, "
        "which is not built yet; look them up there",
    )
