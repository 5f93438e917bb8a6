"""SSH keys of an organization, for logging in to debug containers."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cloister_api.auth.authenticator import Principal
from cloister_api.context import Context
from cloister_api.dashboard.forms import Form
from cloister_api.dashboard.pages.requests import change, context_of, principal_of, render
from cloister_api.errors import ApiError
from cloister_api.schemas.resources import CreateSshKeyRequest

__all__ = ["ROUTES"]

HERE = "ssh-keys"


async def show(request: Request) -> Response:
    """Show the keys."""
    return await page(request, Form.fresh())


async def page(request: Request, form: Form, problem: ApiError | None = None) -> Response:
    """Return the page with what was typed, and why that was not done."""
    return render(
        request,
        "ssh_keys.html",
        problem=problem,
        typed=form,
        keys=context_of(request).related.ssh_keys.all(principal_of(request)),
        parts=("ssh-keys", "containers"),
    )


async def create(request: Request) -> Response:
    """Add a key."""

    async def do(context: Context, principal: Principal, form: Form) -> str:
        body = CreateSshKeyRequest(name=form.get("name"), public_key=form.get("public_key"))
        made = await context.related.ssh_keys.create(principal, body, form.retry)
        return str(made.record.id)

    return await change(request, "ssh-key.create", "", do, page, then=HERE, success=201)


async def delete(request: Request) -> Response:
    """Delete a key that nobody uses."""
    name = request.path_params["name"]

    async def do(context: Context, principal: Principal, _: Form) -> None:
        await context.related.ssh_keys.delete(principal, name, None)

    return await change(request, "ssh-key.delete", name, do, page, then=HERE, success=204)


ROUTES = (
    Route("/o/{slug}/ssh-keys", show),
    Route("/o/{slug}/ssh-keys", create, methods=["POST"]),
    Route("/o/{slug}/ssh-keys/{name}/delete", delete, methods=["POST"]),
)
"""Routes of the module."""
