"""Deployments: the containers of one repository, and updates of all of them."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cloister_api.auth.authenticator import Principal
from cloister_api.context import Context
from cloister_api.dashboard.forms import Form
from cloister_api.dashboard.pages.containers import rows_of
from cloister_api.dashboard.pages.requests import context_of, principal_of, render, submit
from cloister_api.errors import ApiError, not_found
from cloister_api.records.replacement_links import not_replaced, replacement_links
from cloister_api.routes.audit import AuditedWrite
from cloister_api.schemas.resource_responses import DeploymentResponse, DeploymentResult
from cloister_api.schemas.resources import UpdateDeploymentRequest

__all__ = ["ROUTES", "update_of"]

INSTANCE = "instance:"
"""First part of the names of boxes."""


async def deployments(request: Request) -> Response:
    """Show the deployments."""
    found = context_of(request).related.deployments.all(principal_of(request), with_replaced=False)
    parts = ("deployments", "containers")
    return render(request, "deployments.html", deployments=found, parts=parts)


async def show(request: Request) -> Response:
    """Show a deployment."""
    return await page(request, Form.fresh())


def named(context: Context, principal: Principal, identifier: str) -> DeploymentResponse:
    """Return a deployment of the organization.

    Raises
    ------
    ApiError
        404 when it has no such one.
    """
    for each in context.related.deployments.all(principal, with_replaced=False):
        if str(each.id) == identifier:
            return each
    raise not_found("deployment")


async def page(
    request: Request,
    form: Form,
    problem: ApiError | None = None,
    results: list[DeploymentResult] | None = None,
) -> Response:
    """Return the page with what was typed, why that was not done, or what came of it."""
    context, principal = context_of(request), principal_of(request)
    deployment = named(context, principal, request.path_params["id"])
    same = context.cache.repositories.same
    everything = await context.reader.all(principal, request.query_params.get("seen"))
    links = replacement_links(everything)
    listed = [
        each
        for each in not_replaced(everything, links)
        if same(each.container.spec.repo, deployment.repo)
    ]
    return render(
        request,
        "deployment.html",
        problem=problem,
        typed=form,
        deployment=deployment,
        rows=rows_of(request, listed, links),
        results=results,
        parts=("deployments", "containers"),
    )


async def change(request: Request) -> Response:
    """Change whether updates wait where a container says nothing."""
    identifier = request.path_params["id"]

    async def write(form: Form, _: AuditedWrite) -> str:
        principal = principal_of(request)
        await context_of(request).related.deployments.change(
            principal, identifier, default_staging=form.get("staging") == "on", match=None
        )
        return f"/o/{principal.slug}/deployments/{identifier}"

    return await submit(request, "deployment.change", identifier, write, page)


async def update(request: Request) -> Response:
    """Bring a tag to the chosen containers, and show what came of each."""
    identifier = request.path_params["id"]

    async def write(form: Form, _: AuditedWrite) -> Response:
        principal = principal_of(request)
        results = await context_of(request).related.deployments.update(
            principal, identifier, update_of(form), None
        )
        return await page(request, Form.fresh(), results=results)

    return await submit(request, "deployment.update", identifier, write, page)


def update_of(form: Form) -> UpdateDeploymentRequest:
    """Return the update that a form asks for, of the ticked containers alone.

    Raises
    ------
    pydantic.ValidationError
        When it is no tag.
    """
    wait = {"": None, "wait": True, "at-once": False}.get(form.get("staging"))
    return UpdateDeploymentRequest(
        tag=form.get("tag"), staging=wait, instance_ids=form.chosen(INSTANCE)
    )


ROUTES = (
    Route("/o/{slug}/deployments", deployments),
    Route("/o/{slug}/deployments/{id}", show),
    Route("/o/{slug}/deployments/{id}", change, methods=["POST"]),
    Route("/o/{slug}/deployments/{id}/update", update, methods=["POST"]),
)
"""Routes of the module."""
