"""What the organization used and what it cost, over time, by model or by key."""

import csv
import io

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cloister_api.context import Context
from cloister_api.dashboard.pages.requests import context_of, principal_of, render
from cloister_api.dashboard.views.charts import stacks
from cloister_api.errors import bad_request
from cloister_api.records.audit import harmless
from cloister_api.routes.parameters import window_of
from cloister_api.schemas.account_responses import BreakdownResponse, UsageResponse
from cloister_api.usage.breakdown import BreakdownBy
from cloister_api.usage.windows import WINDOWS
from cloister_clients.clock import utc_text

__all__ = ["ROUTES", "points_of", "usage_rows"]

USUAL = "24h"
CHOICES = {"model": BreakdownBy.MODEL, "key": BreakdownBy.KEY}
"""What bars are made of."""


async def show(request: Request) -> Response:
    """Show it."""
    context, principal = context_of(request), principal_of(request)
    time, by, what = chosen(request)
    window, now = window_of(time), context.clock()
    series = await context.accounts.breakdowns.of(
        principal.organization_id, window, CHOICES[by], now
    )
    used = await context.accounts.usage.aggregated(principal.organization_id, window, now)
    points = points_of(series, by, what)
    return render(
        request,
        "usage.html",
        chart=stacks(points),
        points=[(moment, sum(values.values())) for moment, values in points],
        used=used,
        rows=usage_rows(used),
        time=time,
        by=by,
        what=what,
        windows=list(WINDOWS),
        as_of=utc_text(now),
        every=60,
    )


def chosen(request: Request) -> tuple[str, str, str]:
    """Return the window, what bars are made of, and what they measure.

    Raises
    ------
    ApiError
        400 when one of them cannot be.
    """
    given = request.query_params
    time, by, what = given.get("time", USUAL), given.get("by", "model"), given.get("what", "cost")
    window_of(time)
    if by not in CHOICES:
        raise bad_request("by", f"by: write one of {', '.join(CHOICES)}")
    if what not in {"cost", "tokens"}:
        raise bad_request("what", "what: write cost or tokens")
    return time, by, what


def points_of(series: BreakdownResponse, by: str, what: str) -> list[tuple[str, dict[str, float]]]:
    """Return the points of a chart.

    Parameters
    ----------
    series
        Usage over time, by group.
    by
        ``model`` or ``key``.
    what
        ``cost`` or ``tokens``.
    """
    found = []
    for point in series.data_points:
        values: dict[str, float] = {}
        for group in point.groups:
            name = (group.model if by == "model" else group.key) or "unknown"
            values[name] = values.get(name, 0.0) + float(getattr(group, what))
        if point.others is not None:
            values["others"] = values.get("others", 0.0) + float(getattr(point.others, what))
        found.append((f"{point.time[:10]} {point.time[11:16]}", values))
    return found


def usage_rows(used: UsageResponse) -> list[tuple[str, str, int, int, int, float]]:
    """Return key, model, requests, input tokens, output tokens and cost, the dearest first."""
    rows = [
        (key, model, one.requests, one.input_tokens, one.output_tokens, one.cost)
        for key, usage in used.keys.items()
        for model, one in usage.models.items()
    ]
    return sorted(rows, key=lambda row: (-row[5], row[0], row[1]))


async def export(request: Request) -> Response:
    """Return the rows of the page as CSV (RFC 4180)."""
    context, principal = context_of(request), principal_of(request)
    time, _, _ = chosen(request)
    used = await used_in(context, principal.organization_id, time)
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(("key", "model", "requests", "input_tokens", "output_tokens", "cost"))
    for row in usage_rows(used):
        writer.writerow(harmless(each) for each in row)
    name = f"usage-{principal.slug}-{time}.csv"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(file.getvalue(), media_type="text/csv", headers=headers)


async def used_in(context: Context, organization_id: str, time: str) -> UsageResponse:
    """Return what an organization used in a window."""
    return await context.accounts.usage.aggregated(
        organization_id, window_of(time), context.clock()
    )


ROUTES = (Route("/o/{slug}/usage", show), Route("/o/{slug}/usage/export", export))
"""Routes of the module."""
