"""SSH keys of an organization, for logging in to debug containers."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cloister_api.dashboard.forms import Form
from cloister_api.dashboard.pages.requests import context_of, principal_of, render, submit
from cloister_api.errors import ApiError
from cloister_api.routes.audit import AuditedWrite
from cloister_api.schemas.resources import CreateSshKeyRequest

__all__ = ["ROUTES"]


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

    async def write(form: Form, written: AuditedWrite) -> str:
        principal = principal_of(request)
        body = CreateSshKeyRequest(name=form.get("name"), public_key=form.get("public_key"))
        made = await context_of(request).related.ssh_keys.create(principal, body, form.retry)
        written.target = made.record.id
        return f"/o/{principal.slug}/ssh-keys"

    return await submit(request, "ssh-key.create", "", write, page, success=201)


async def delete(request: Request) -> Response:
    """Delete a key that nobody uses."""
    name = request.path_params["name"]

    async def write(_: Form, __: AuditedWrite) -> str:
        principal = principal_of(request)
        await context_of(request).related.ssh_keys.delete(principal, name, None)
        return f"/o/{principal.slug}/ssh-keys"

    return await submit(request, "ssh-key.delete", name, write, page, success=204)


ROUTES = (
    Route("/o/{slug}/ssh-keys", show),
    Route("/o/{slug}/ssh-keys", create, methods=["POST"]),
    Route("/o/{slug}/ssh-keys/{name}/delete", delete, methods=["POST"]),
)
"""Routes of the module."""
