"""What a container asks for, and a form to change it."""

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cloister_api.cache import CachedContainer
from cloister_api.dashboard.forms import Form
from cloister_api.dashboard.pages.container_forms import (
    changes_of,
    choices_of,
    container_manifest_of,
    filled,
)
from cloister_api.dashboard.pages.requests import context_of, principal_of, render, submit
from cloister_api.errors import ApiError
from cloister_api.records.replacement_links import replacement_links
from cloister_api.routes.audit import AuditedWrite
from cloister_api.routes.containers import shown_record
from cloister_api.schemas.containers import RelaunchRequest
from cloister_crds.kinds.container import DesiredState

__all__ = ["ROUTES"]


async def show(request: Request) -> Response:
    """Show what the container asks for."""
    return await page(request, None)


async def page(request: Request, form: Form | None, problem: ApiError | None = None) -> Response:
    """Return the page with what was typed, and why that was not done.

    Parameters
    ----------
    request
        The request.
    form
        What was typed; None = the container as it is.
    problem
        Why it was not done.
    """
    context, principal = context_of(request), principal_of(request)
    held = await context.reader.get(
        principal, request.path_params["id"], request.query_params.get("seen")
    )
    status, _ = context.statuses.of(held)
    spec = held.container.spec
    links = replacement_links(context.reader.known(principal))
    return render(
        request,
        "container_settings.html",
        problem=problem,
        typed=form or filled(spec),
        name=held.container.display_name,
        identifier=held.id,
        version=f'"{held.version}"',
        record=shown_record(context, principal, held, links),
        stopped=spec.state is DesiredState.STOPPED,
        managed_by=status.managed_by,
        manifest=manifest_if_managed(held, form, problem),
        object_name=held.container.metadata.name,
        **choices_of(request),
    )


def manifest_if_managed(held: CachedContainer, form: Form | None, problem: ApiError | None) -> str:
    """Return what a form asks for as a manifest, where somebody else manages it; else empty."""
    meta = held.container.metadata
    if form is None or problem is None or problem.status != HTTPStatus.CONFLICT:
        return ""
    try:
        changes = changes_of(form, held.container.spec)
    except ApiError:
        return ""
    return container_manifest_of(meta.name, meta.namespace or "", changes) if changes else ""


async def change(request: Request) -> Response:
    """Run the container with what the form changes."""
    context, identifier = context_of(request), request.path_params["id"]
    shown = await context.reader.get(principal_of(request), identifier, None)
    stopped = shown.container.spec.state is DesiredState.STOPPED
    action = "container.start" if stopped else "container.relaunch"

    async def write(form: Form, _: AuditedWrite) -> str:
        principal = principal_of(request)
        held = await context.reader.get(principal, identifier, None, form.get("version") or None)
        body = RelaunchRequest.model_validate(changes_of(form, held.container.spec))
        deploy = context.updater.start if stopped else context.updater.relaunch
        changed = await deploy(principal, held, body)
        return f"/o/{principal.slug}/containers/{identifier}?seen={changed.version}"

    return await submit(request, action, identifier, write, page)


ROUTES = (
    Route("/o/{slug}/containers/{id}/settings", show),
    Route("/o/{slug}/containers/{id}/settings", change, methods=["POST"]),
)
"""Routes of the module; they go before those of the other forms of a container."""
