"""Admin keys: only for administrators, who signed in a short while ago where a value is at stake.

The value of a key is in no page: the form that reveals it is answered by the value as plain text,
which no cache keeps.
"""

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from cloister_api.dashboard.pages.requests import (
    context_of,
    principal_of,
    render,
    require_recent,
    require_right,
    sign_in_again,
    submit,
)
from cloister_api.dashboard.rendering import Form
from cloister_api.errors import ApiError
from cloister_api.routes.audit import AuditedWrite
from cloister_api.services.resources.organization import is_valid


async def show(request: Request) -> Response:
    """Show the keys."""
    require_right(request)
    return page(request, Form({}))


def page(request: Request, form: Form, problem: ApiError | None = None) -> Response:
    """Return the page with what was typed, and why that was not done."""
    context, principal = context_of(request), principal_of(request)
    now = context.clock()
    keys = context.admin_key_desk.of(principal)
    return render(
        request,
        "admin_keys.html",
        typed=form,
        problem=problem,
        keys=[(key, is_valid(key, now)) for key in keys],
        again=sign_in_again(request, f"/o/{principal.slug}/admin-keys"),
    )


async def create(request: Request) -> Response:
    """Create a key."""

    async def write(form: Form, written: AuditedWrite) -> str:
        principal = principal_of(request)
        require_recent(request)
        key = await context_of(request).admin_key_desk.create(
            principal, name=form.get("name"), days=form.get("days")
        )
        written.target = key.id
        return f"/o/{principal.slug}/admin-keys"

    return await submit(request, "admin_key.create", "", write, again, success=201)


async def reveal(request: Request) -> Response:
    """Return the value of a key as plain text."""
    key_id = request.path_params["id"]

    async def write(_: Form, __: AuditedWrite) -> Response:
        require_recent(request)
        value = await context_of(request).admin_key_desk.reveal(principal_of(request), key_id)
        return PlainTextResponse(f"{value}\n", headers={"cache-control": "no-store"})

    return await submit(request, "admin_key.reveal", key_id, write, again)


async def revoke(request: Request) -> Response:
    """Revoke a key."""
    key_id = request.path_params["id"]

    async def write(_: Form, __: AuditedWrite) -> str:
        principal = principal_of(request)
        await context_of(request).admin_key_desk.revoke(principal, key_id)
        return f"/o/{principal.slug}/admin-keys"

    return await submit(request, "admin_key.revoke", key_id, write, again)


async def again(request: Request, form: Form, problem: ApiError) -> Response:
    """Return the page with why something was not done.

    Raises
    ------
    ApiError
        That, for who may not see the page.
    """
    try:
        require_right(request)
    except ApiError:
        raise problem from None
    return page(request, form, problem)


ROUTES = (
    Route("/o/{slug}/admin-keys", show),
    Route("/o/{slug}/admin-keys", create, methods=["POST"]),
    Route("/o/{slug}/admin-keys/{id}/reveal", reveal, methods=["POST"]),
    Route("/o/{slug}/admin-keys/{id}/revoke", revoke, methods=["POST"]),
)
"""Routes of the module."""
