"""What else there is to know of a container: utilization, measurement, events."""

from http import HTTPStatus

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cloister_api.cache import CachedContainer
from cloister_api.dashboard.live.feed import container_part
from cloister_api.dashboard.pages.requests import context_of, membership_of, principal_of, render
from cloister_api.dashboard.views.charts import Chart, curves
from cloister_api.errors import ApiError
from cloister_api.ledger.audit import AuditQuery
from cloister_api.records.audit import audit_record
from cloister_api.routes.parameters import window_of
from cloister_api.schemas.container_responses import UtilizationPoint
from cloister_api.usage.windows import WINDOWS
from cloister_crds.kinds.organization import Role

__all__ = ["ROUTES", "utilization_charts"]

USUAL = "1h"
SHARES = (
    ("Processors and memory, in percent", {"CPU": "cpu_util", "memory": "cpu_mem_util"}),
    ("GPUs, in percent", {"GPU": "gpu_util", "memory of the GPUs": "gpu_mem_util"}),
)
"""Charts, and their series by the fields of points."""
CHANGES = 20
"""Rows of the audit trail that a page shows."""


async def held_of(request: Request) -> CachedContainer:
    """Return the container of the path.

    Raises
    ------
    ApiError
        404 when the organization has no such container.
    """
    return await context_of(request).reader.get(
        principal_of(request), request.path_params["id"], None
    )


async def metrics(request: Request) -> Response:
    """Show its utilization."""
    context, held = context_of(request), await held_of(request)
    time = request.query_params.get("time", USUAL)
    series = (principal_of(request).organization_id, held.id)
    found = await context.utilization.of(series, window_of(time), context.clock())
    return render(
        request,
        "metrics.html",
        name=held.container.display_name,
        identifier=held.id,
        charts=utilization_charts(found.data_points),
        points=found.data_points,
        time=time,
        windows=list(WINDOWS),
        every=15,
    )


def utilization_charts(points: list[UtilizationPoint]) -> list[tuple[str, Chart]]:
    """Return title and drawing of what is known."""
    found = []
    for title, fields in SHARES:
        chart = curves(
            [
                (
                    f"{point.time[:10]} {point.time[11:16]}",
                    {name: getattr(point, field) for name, field in fields.items()},
                )
                for point in points
            ],
            most=100.0,
        )
        if chart is not None:
            found.append((title, chart))
    return found


async def measurement(request: Request) -> Response:
    """Show what identifies the enclave that serves."""
    context, held = context_of(request), await held_of(request)
    try:
        found, trouble = await context.measurements.of(held), ""
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        found, trouble = None, error.message
    document = msgspec.json.format(msgspec.json.encode(found.document)) if found else b""
    return render(
        request,
        "measurement.html",
        name=held.container.display_name,
        identifier=held.id,
        debug=held.container.spec.debug,
        hostname=held.container.status.domain,
        found=found,
        trouble=trouble,
        document=document.decode(),
        parts=(container_part(held.container.metadata.uid),),
    )


async def events(request: Request) -> Response:
    """Show what happened to it, and who changed it."""
    context, principal, held = context_of(request), principal_of(request), await held_of(request)
    changes = []
    if membership_of(request).role is Role.ADMIN:
        query = AuditQuery(
            organization=principal.slug,
            organization_id=principal.organization_id,
            present_since=principal.organization.metadata.creation_timestamp,
            limit=CHANGES,
            target=held.id,
        )
        changes = [audit_record(*row) for row in await context.audit.page(query)]
    return render(
        request,
        "container_events.html",
        name=held.container.display_name,
        identifier=held.id,
        events=await context.statuses.events(held),
        changes=changes,
        parts=(container_part(held.container.metadata.uid),),
    )


ROUTES = (
    Route("/o/{slug}/containers/{id}/metrics", metrics),
    Route("/o/{slug}/containers/{id}/measurement", measurement),
    Route("/o/{slug}/containers/{id}/events", events),
)
"""Routes of the module."""
