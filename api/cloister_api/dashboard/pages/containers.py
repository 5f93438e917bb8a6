"""The containers of an organization: the list, one container with its details, its actions."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from cloister_api.auth.authenticator import Principal
from cloister_api.auth.roles import RoleRight
from cloister_api.cache import CachedContainer
from cloister_api.context import Context
from cloister_api.dashboard.charts import Chart, curves
from cloister_api.dashboard.listing import Choice, page_of
from cloister_api.dashboard.live import container_part
from cloister_api.dashboard.pages.requests import (
    context_of,
    has_right,
    membership_of,
    principal_of,
    render,
    submit,
)
from cloister_api.dashboard.rendering import Form
from cloister_api.dashboard.rows import (
    PHASES,
    SITUATIONS,
    ContainerRow,
    checks_of,
    container_rows,
    possible_actions,
    product_names,
    ready_of,
    size_of,
    steps_of,
    update_of,
)
from cloister_api.errors import ApiError, bad_request
from cloister_api.ledger.audit import AuditQuery
from cloister_api.records.container import ReplacementLinks, replacement_links
from cloister_api.records.resources import audit_record
from cloister_api.routes.audit import AuditedWrite
from cloister_api.routes.containers import shown_record, shown_records
from cloister_api.routes.parameters import window_of
from cloister_api.schemas.container_responses import ContainerStatusResponse, UtilizationPoint
from cloister_api.schemas.containers import RelaunchRequest
from cloister_api.usage.windows import WINDOWS


async def home(request: Request) -> Response:
    """Go to the containers, which are the overview."""
    slug = membership_of(request).organization.metadata.name
    return RedirectResponse(f"/o/{slug}/containers", 303)


async def containers(request: Request) -> Response:
    """Show the containers that no other one is replacing, the most urgent first."""
    context, principal = context_of(request), principal_of(request)
    if await context.reader.reached(request.query_params.get("seen")):
        containers = context.reader.known(principal)
    else:
        containers = await context.reader.list_now(principal.namespace)
    choice, links = Choice.of(request.query_params), replacement_links(containers)
    listing = page_of(containers, links, choice)
    return render(
        request,
        "containers.html",
        organization=context.organization.of(principal),
        rows=rows_of(request, listing.held, links),
        listing=listing,
        choice=choice,
        situations=SITUATIONS,
        query=urlencode({"search": choice.text, "status": choice.status}),
        parts=("containers", "organization"),
    )


def rows_of(
    request: Request,
    containers: Sequence[CachedContainer],
    links: Mapping[str, ReplacementLinks],
) -> list[ContainerRow]:
    """Return the rows of some containers, the most urgent first."""
    context, principal = context_of(request), principal_of(request)
    records = shown_records(context, principal, containers, links)
    return container_rows(
        (held, record, context.statuses.managers_of(held))
        for held, record in zip(containers, records, strict=True)
    )


async def container(request: Request) -> Response:
    """Show a container."""
    return await container_page(request)


async def container_page(
    request: Request, *, problem: ApiError | None = None, form: Form | None = None
) -> Response:
    """Return the page of a container: what serves, what is on its way, and why.

    Parameters
    ----------
    problem
        Why what a form requested was not done; None if nothing was requested.
    """
    held = await context_of(request).reader.get(
        principal_of(request), request.path_params["id"], request.query_params.get("seen")
    )
    about = about_container(request, held)
    status: ContainerStatusResponse = about["status"]
    enclave = status.candidate or status.serving
    return render(
        request,
        "container.html",
        problem=problem,
        typed=form or Form({}),
        parts=(container_part(held.container.metadata.uid),),
        ready=ready_of(status),
        checks=checks_of(status.conditions),
        steps=steps_of(enclave.boot_stages if enclave is not None else []),
        namespace=held.container.metadata.namespace,
        object_name=held.container.metadata.name,
        **about,
    )


def about_container(request: Request, held: CachedContainer) -> dict[str, Any]:
    """Return what the head of every page of a container shows."""
    context, principal = context_of(request), principal_of(request)
    links = replacement_links(context.reader.known(principal))
    record = shown_record(context, principal, held, links)
    status, _ = context.statuses.of(held)
    return {
        "record": record,
        "status": status,
        "version": f'"{held.version}"',
        "actions": possible_actions(held)
        - (set() if has_right(request, RoleRight.ADMINISTER) else {"delete"}),
        "phase": PHASES[record.status],
        "update": update_of(record.update_status, record.update_tag or ""),
        "managers": product_names(status.managed_by),
        "size": size_of(record.cpus, record.memory_mb, record.gpus),
    }


LIST_ROUTES = (
    Route("/o/{slug}", home),
    Route("/o/{slug}/containers", containers),
    Route("/o/{slug}/containers/{id}", container),
)
"""Routes of the module."""


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
        **about_container(request, held),
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
        **about_container(request, held),
        found=found,
        trouble=trouble,
        document=document.decode(),
        parts=(container_part(held.container.metadata.uid),),
    )


async def events(request: Request) -> Response:
    """Show what happened to it, and who changed it."""
    context, principal, held = context_of(request), principal_of(request), await held_of(request)
    changes = []
    if has_right(request, RoleRight.AUDIT):
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
        **about_container(request, held),
        events=await context.statuses.events(held),
        changes=changes,
        parts=(container_part(held.container.metadata.uid),),
    )


DETAIL_ROUTES = (
    Route("/o/{slug}/containers/{id}/metrics", metrics),
    Route("/o/{slug}/containers/{id}/measurement", measurement),
    Route("/o/{slug}/containers/{id}/events", events),
)
"""Routes of the module."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A form that somebody has sent."""

    context: Context
    """What the facade has."""
    principal: Principal
    """Who."""
    held: CachedContainer
    """The container, in the version that the page showed."""
    form: Form
    """The form."""


Do = Callable[[Attempt], Awaitable[CachedContainer | None]]
"""Does something, and returns the container after it; None if it is gone."""


async def stop(attempt: Attempt) -> CachedContainer:
    """Stop what runs and keep the container."""
    return await attempt.context.updater.stop(attempt.held)


async def start(attempt: Attempt) -> CachedContainer:
    """Deploy a stopped container again."""
    body = requested(attempt.form)
    return await attempt.context.updater.start(attempt.principal, attempt.held, body)


async def relaunch(attempt: Attempt) -> CachedContainer:
    """Make a new attempt, perhaps of another release."""
    body = requested(attempt.form)
    return await attempt.context.updater.relaunch(attempt.principal, attempt.held, body)


async def accept(attempt: Attempt) -> CachedContainer:
    """Promote the staged update."""
    return await attempt.context.updater.accept(attempt.held)


async def cancel(attempt: Attempt) -> CachedContainer:
    """Go back to what served before the update."""
    return await attempt.context.updater.cancel(attempt.held)


async def delete(attempt: Attempt) -> None:
    """Delete the container, whose name the form repeats.

    Raises
    ------
    ApiError
        400 when it names another one.
    """
    name = attempt.held.container.display_name
    if attempt.form.get("name") != name:
        raise bad_request("name", f"name: write {name} to delete this container permanently")
    await attempt.context.updater.delete(attempt.principal, attempt.held)


async def follow(attempt: Attempt) -> CachedContainer:
    """Follow the newest release, or stay at this one."""
    wanted = attempt.form.get("wanted") == "on"
    return await attempt.context.updater.follow(attempt.held, wanted=wanted)


async def connect(attempt: Attempt) -> CachedContainer:
    """Listen to the repository's webhooks, or ignore them."""
    wanted = attempt.form.get("wanted") == "on"
    return await attempt.context.updater.connect(attempt.held, wanted=wanted)


def requested(form: Form) -> RelaunchRequest:
    """Return what a form changes: the release, where it names another one.

    Raises
    ------
    pydantic.ValidationError
        When it is not a tag.
    """
    tag = form.get("tag")
    return RelaunchRequest(tag=tag) if tag else RelaunchRequest()


ACTIONS: dict[str, tuple[str, Do]] = {
    "stop": ("container.stop", stop),
    "start": ("container.start", start),
    "relaunch": ("container.relaunch", relaunch),
    "accept": ("container.update.accept", accept),
    "cancel": ("container.update.cancel", cancel),
    "delete": ("container.delete", delete),
    "auto-update": ("container.auto-update", follow),
    "github-connection": ("container.github-connection", connect),
}
"""What each form does, and what the audit trail calls it, by the last part of its address."""


async def act(request: Request) -> Response:
    """Do what a form requests, and show the container; its page shows a refusal."""
    name, identifier = request.path_params["action"], request.path_params["id"]
    if name not in ACTIONS:
        raise ApiError(404, "NOT_FOUND", "nothing of this name can be done to a container")
    action, do = ACTIONS[name]

    async def write(form: Form, _: AuditedWrite) -> str:
        context, principal = context_of(request), principal_of(request)
        held = await context.reader.get(principal, identifier, None, form.get("version") or None)
        changed = await do(Attempt(context, principal, held, form))
        where = f"/o/{principal.slug}/containers"
        return where if changed is None else f"{where}/{identifier}?seen={changed.version}"

    right = RoleRight.ADMINISTER if name == "delete" else RoleRight.DEPLOY
    return await submit(request, action, identifier, write, again, right=right)


async def again(request: Request, form: Form, problem: ApiError) -> Response:
    """Return the page of the container with why something was not done."""
    return await container_page(request, problem=problem, form=form)


ACTION_ROUTES = (Route("/o/{slug}/containers/{id}/{action}", act, methods=["POST"]),)
"""Routes of the module."""
