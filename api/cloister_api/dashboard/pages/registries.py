"""Credentials of private registries: whether there are some, and since when; no value is shown."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cloister_api.auth.authenticator import Principal
from cloister_api.context import Context
from cloister_api.dashboard.forms import Form
from cloister_api.dashboard.pages.requests import change, context_of, principal_of, render
from cloister_api.errors import ApiError
from cloister_api.schemas.resources import PutRegistryCredentialsRequest

__all__ = ["ROUTES"]

HERE = "registries"


async def show(request: Request) -> Response:
    """Show the registries."""
    return await page(request, Form({}))


async def page(request: Request, form: Form, problem: ApiError | None = None) -> Response:
    """Return the page with what was typed, and why that was not done."""
    principal = principal_of(request)
    entitled = principal.organization.spec.entitlements.private_registries
    registries = context_of(request).related.registry_credentials
    return render(
        request,
        "registries.html",
        problem=problem,
        typed=form,
        chosen=request.path_params.get("registry", ""),
        statuses=dict(registries.all(principal)) if entitled else {},
        parts=("registries", "organization"),
    )


async def put(request: Request) -> Response:
    """Write credentials."""
    registry = request.path_params["registry"]

    async def do(context: Context, principal: Principal, form: Form) -> None:
        body = PutRegistryCredentialsRequest(
            username=form.get("username") or None,
            token=form.get("token") or None,
            key=form.get("key") or None,
        )
        await context.related.registry_credentials.put(principal, registry, body, None)

    return await change(request, "registry-credential.put", registry, do, page, then=HERE)


async def delete(request: Request) -> Response:
    """Delete credentials."""
    registry = request.path_params["registry"]
    action = "registry-credential.delete"

    async def do(context: Context, principal: Principal, _: Form) -> None:
        await context.related.registry_credentials.delete(principal, registry, None)

    return await change(request, action, registry, do, page, then=HERE, success=204)


ROUTES = (
    Route("/o/{slug}/registries", show),
    Route("/o/{slug}/registries/{registry}", put, methods=["POST"]),
    Route("/o/{slug}/registries/{registry}/delete", delete, methods=["POST"]),
)
"""Routes of the module."""
