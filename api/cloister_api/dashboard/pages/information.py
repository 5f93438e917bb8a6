"""Pages that only show: models, billing, audit trail, hosts, settings of the organization."""

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cloister_api.dashboard.pages.requests import (
    context_of,
    membership_of,
    principal_of,
    render,
    require_admin,
)
from cloister_api.errors import ApiError, bad_request
from cloister_api.ledger.audit import AuditQuery
from cloister_api.records.audit import audit_record, csv_text
from cloister_api.routes.audit_trail import MAX_TEXT, row_of
from cloister_api.routes.billing import run_time_record
from cloister_api.routes.pagination import encode_cursor
from cloister_api.routes.parameters import window_of
from cloister_api.schemas.account_responses import Transaction
from cloister_api.usage.windows import WINDOWS, span_of
from cloister_crds.kinds.organization import Role

__all__ = ["ROUTES"]

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
    if membership_of(request).role is Role.ADMIN:
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
    require_admin(request)
    query = audit_query(request, ROWS + 1)
    found = await context_of(request).audit.page(query)
    records = [audit_record(number, row) for number, row in found[:ROWS]]
    older = encode_cursor((str(records[-1].id),)) if len(found) > ROWS else ""
    chosen = {"actor": query.actor, "action": query.action, "target": query.target}
    return render(request, "audit.html", records=records, older=older, chosen=chosen)


async def audit_file(request: Request) -> Response:
    """Return the newest rows of the audit trail as CSV."""
    require_admin(request)
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


ROUTES = (
    Route("/o/{slug}/models", models),
    Route("/o/{slug}/billing", billing),
    Route("/o/{slug}/audit", audit),
    Route("/o/{slug}/audit/export", audit_file),
    Route("/o/{slug}/hosts", hosts),
    Route("/o/{slug}/settings", settings),
)
"""Routes of the module."""
