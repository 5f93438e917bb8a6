"""Secrets of an organization: their names and users; a value is written and never shown."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cloister_api.auth.authenticator import Principal
from cloister_api.context import Context
from cloister_api.dashboard.forms import Form
from cloister_api.dashboard.pages.requests import change, context_of, principal_of, render
from cloister_api.errors import ApiError
from cloister_api.schemas.resources import CreateSecretRequest, UpdateSecretRequest

__all__ = ["ROUTES"]

HERE = "secrets"


async def show(request: Request) -> Response:
    """Show the secrets; the address may suggest the name and the repository of a new one."""
    suggested = {name: request.query_params.get(name, "") for name in ("name", "repo")}
    return await page(request, Form.fresh(**suggested))


async def page(request: Request, form: Form, problem: ApiError | None = None) -> Response:
    """Return the page with what was typed, and why that was not done."""
    return render(
        request,
        "secrets.html",
        problem=problem,
        typed=form,
        secrets=context_of(request).related.secrets.all(principal_of(request)),
        parts=("secrets", "containers"),
    )


async def create(request: Request) -> Response:
    """Create a secret."""

    async def do(context: Context, principal: Principal, form: Form) -> str:
        body = CreateSecretRequest(
            name=form.get("name"), value=form.whole("value"), repo=form.get("repo") or None
        )
        made = await context.related.secrets.create(principal, body, form.retry)
        return str(made.record.id)

    return await change(request, "secret.create", "", do, page, then=HERE, success=201)


async def update(request: Request) -> Response:
    """Write a new value of a secret."""
    name = request.path_params["id"]

    async def do(context: Context, principal: Principal, form: Form) -> None:
        body = UpdateSecretRequest(value=form.whole("value"))
        await context.related.secrets.update(principal, name, body.value, None)

    return await change(request, "secret.update", name, do, page, then=HERE)


async def delete(request: Request) -> Response:
    """Delete a secret that nobody uses."""
    name = request.path_params["id"]

    async def do(context: Context, principal: Principal, _: Form) -> None:
        await context.related.secrets.delete(principal, name, None)

    return await change(request, "secret.delete", name, do, page, then=HERE, success=204)


ROUTES = (
    Route("/o/{slug}/secrets", show),
    Route("/o/{slug}/secrets", create, methods=["POST"]),
    Route("/o/{slug}/secrets/{id}/update", update, methods=["POST"]),
    Route("/o/{slug}/secrets/{id}/delete", delete, methods=["POST"]),
)
"""Routes of the module."""
