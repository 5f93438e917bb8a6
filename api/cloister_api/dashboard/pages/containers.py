"""The containers of an organization: the list, and one of them."""

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from cloister_api.cache import CachedContainer
from cloister_api.dashboard.forms import Form
from cloister_api.dashboard.live.feed import container_part
from cloister_api.dashboard.live.listed import ListedContainers
from cloister_api.dashboard.pages.requests import (
    context_of,
    membership_of,
    principal_of,
    render,
)
from cloister_api.dashboard.views.listing import Choice, OrderedContainers
from cloister_api.dashboard.views.rows import (
    ContainerRow,
    condition_rows,
    container_rows,
    possible_actions,
    sentence_of,
    tone_of,
)
from cloister_api.errors import ApiError
from cloister_api.records.replacement_links import ReplacementLinks, replacement_links
from cloister_api.routes.containers import shown_record, shown_records

__all__ = ["ROUTES", "container_page", "rows_of"]


async def home(request: Request) -> Response:
    """Go to the containers, which are the overview."""
    slug = membership_of(request).organization.metadata.name
    return RedirectResponse(f"/o/{slug}/containers", 303)


async def containers(request: Request) -> Response:
    """Show the containers that no other one is replacing, the most urgent first."""
    context, principal = context_of(request), principal_of(request)
    listed: ListedContainers = request.app.state.listed()
    if await context.reader.reached(request.query_params.get("seen")):
        containers = listed.of(principal.namespace)
    else:
        containers = OrderedContainers(await context.reader.list_now(principal.namespace))
    choice, links = Choice.of(request.query_params), containers.links()
    listing = containers.page(choice, links)
    return render(
        request,
        "containers.html",
        organization=context.organization.of(principal),
        rows=rows_of(request, listing.held, links),
        listing=listing,
        choice=choice,
        query=urlencode({"search": choice.text, "status": choice.status}),
        parts=("containers", "organization"),
    )


def rows_of(
    request: Request,
    containers: Sequence[CachedContainer],
    links: Mapping[str, ReplacementLinks],
) -> list[ContainerRow]:
    """Return the rows of some containers, the most urgent first.

    Parameters
    ----------
    request
        The request.
    containers
        Containers of its organization.
    links
        Which containers of the organization replace which.
    """
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
    request
        The request.
    problem
        Why what a form asked for was not done; None = nothing was.
    form
        That form, whose fields stay.
    """
    context, principal = context_of(request), principal_of(request)
    held = await context.reader.get(
        principal, request.path_params["id"], request.query_params.get("seen")
    )
    status, _ = context.statuses.of(held)
    links = replacement_links(context.reader.known(principal))
    meta = held.container.metadata
    return render(
        request,
        "container.html",
        problem=problem,
        typed=form or Form({}),
        parts=(container_part(meta.uid),),
        version=f'"{held.version}"',
        actions=possible_actions(held),
        record=shown_record(context, principal, held, links),
        status=status,
        tone=tone_of(status.status),
        sentence=sentence_of(status),
        conditions=condition_rows(status.conditions),
        namespace=meta.namespace,
        object_name=meta.name,
    )


ROUTES = (
    Route("/o/{slug}", home),
    Route("/o/{slug}/containers", containers),
    Route("/o/{slug}/containers/{id}", container),
)
"""Routes of the module."""
