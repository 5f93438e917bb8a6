"""Pages that only show: organizations, models, usage, billing, audit trail, hosts, settings."""

import csv
import io
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from cloister_api.auth.roles import RoleRight
from cloister_api.context import Context
from cloister_api.dashboard.charts import stacks
from cloister_api.dashboard.pages.requests import (
    context_of,
    has_right,
    principal_of,
    render,
    require_right,
    session_of,
)
from cloister_api.errors import ApiError, bad_request
from cloister_api.ledger.audit import AuditQuery
from cloister_api.records.resources import audit_record, csv_text, harmless
from cloister_api.routes.audit import MAX_TEXT, row_of
from cloister_api.routes.billing import run_time_record
from cloister_api.routes.parameters import encode_cursor, window_of
from cloister_api.schemas.accounts import BreakdownResponse, Transaction, UsageResponse
from cloister_api.usage.queries import BreakdownBy
from cloister_api.usage.windows import WINDOWS, span_of
from cloister_clients.clock import utc_text

ROWS = 50
"""Rows of a page of the audit trail."""
EXPORTED = 1000
"""Rows of the audit trail in one file."""
RUN_TIME = "30d"


async def models(request: Request) -> Response:
    """Show the model catalog."""
    text = request.query_params.get("search", "").strip().lower()
    listed = context_of(request).accounts.catalog.listed
    found = [each for each in listed if text in f"{each.name} {each.model_name}".lower()]
    return render(request, "models.html", models=found, search=text, there=bool(listed))


async def billing(request: Request) -> Response:
    """Show subscription, run time and transactions."""
    context, principal = context_of(request), principal_of(request)
    time = request.query_params.get("time", RUN_TIME)
    span = span_of(window_of(time), context.clock())
    served = await context.accounts.runtime.of(principal.organization_id, span.begin, span.end)
    transactions: list[Transaction] = []
    trouble = ""
    if has_right(request, RoleRight.AUDIT):
        try:
            transactions = await context.payments.transactions(principal.organization)
        except ApiError as error:
            if error.status not in {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE}:
                raise
            trouble = error.message
    return render(
        request,
        "billing.html",
        organization=context.organization.of(principal),
        metering=context.installation.metering,
        served=[run_time_record(each) for each in served],
        transactions=transactions,
        trouble=trouble,
        time=time,
        windows=list(WINDOWS),
        parts=("organization",),
    )


async def audit(request: Request) -> Response:
    """Show the audit trail, newest first."""
    require_right(request, RoleRight.AUDIT)
    query = audit_query(request, ROWS + 1)
    found = await context_of(request).audit.page(query)
    records = [audit_record(number, row) for number, row in found[:ROWS]]
    older = encode_cursor((str(records[-1].id),)) if len(found) > ROWS else ""
    chosen = {"actor": query.actor, "action": query.action, "target": query.target}
    return render(request, "audit.html", records=records, older=older, chosen=chosen)


async def audit_file(request: Request) -> Response:
    """Return the newest rows of the audit trail as CSV."""
    require_right(request, RoleRight.AUDIT)
    query = audit_query(request, EXPORTED)
    found = await context_of(request).audit.page(query)
    name = f"audit-{query.organization}.csv"
    return Response(
        csv_text(audit_record(number, row) for number, row in found),
        media_type="text/csv",
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )


def audit_query(request: Request, limit: int) -> AuditQuery:
    """Return the rows that a request chooses.

    Raises
    ------
    ApiError
        400 when a text is too long or the cursor is of another list.
    """
    principal, given = principal_of(request), request.query_params
    chosen = {name: given.get(name, "").strip() for name in ("actor", "action", "target")}
    for name, text in chosen.items():
        if len(text) > MAX_TEXT or "\0" in text:
            raise bad_request(name, f"{name}: write at most {MAX_TEXT} characters")
    return AuditQuery(
        organization=principal.slug,
        organization_id=principal.organization_id,
        present_since=principal.organization.metadata.creation_timestamp,
        limit=limit,
        actor=chosen["actor"] or None,
        action=chosen["action"] or None,
        target=chosen["target"] or None,
        before=row_of(given.get("cursor")),
    )


async def hosts(request: Request) -> Response:
    """Show the Hosts, if people may choose one."""
    context, principal = context_of(request), principal_of(request)
    return render(
        request,
        "hosts.html",
        hosts=context.validation.hosts(),
        chooses=principal.organization.spec.entitlements.host_selection,
        parts=("hosts", "organization"),
    )


async def settings(request: Request) -> Response:
    """Show what the organization is and may, and its other doors."""
    context, principal = context_of(request), principal_of(request)
    return render(
        request,
        "settings.html",
        organization=context.organization.of(principal),
        containers_domain=context.installation.containers_domain,
        parts=("organization",),
    )


INFORMATION_ROUTES = (
    Route("/o/{slug}/models", models),
    Route("/o/{slug}/billing", billing),
    Route("/o/{slug}/audit", audit),
    Route("/o/{slug}/audit/export", audit_file),
    Route("/o/{slug}/hosts", hosts),
    Route("/o/{slug}/settings", settings),
)
"""Routes of the module."""


async def home(_: Request) -> Response:
    """Go to the organizations."""
    return RedirectResponse("/organizations", 303)


async def organizations(request: Request) -> Response:
    """Show them; where there is one, go there."""
    found = context_of(request).sessions.memberships(session_of(request).user)
    if len(found) == 1 and "all" not in request.query_params:
        slug = found[0].organization.metadata.name
        return RedirectResponse(f"/o/{slug}/containers", 303)
    return render(request, "organizations.html", memberships=found)


ORGANIZATION_ROUTES = (Route("/", home), Route("/organizations", organizations))
"""Routes of the module."""


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


USAGE_ROUTES = (Route("/o/{slug}/usage", show), Route("/o/{slug}/usage/export", export))
"""Routes of the module."""
