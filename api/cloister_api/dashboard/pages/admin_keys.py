"""Admin keys: for administrators alone, who signed in a short while ago where a value is at stake.

The value of a key is in no page: the form that reveals it is answered by the value as plain text,
which no cache keeps.
"""

from datetime import timedelta

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from cloister_api.dashboard.forms import Form, read_form
from cloister_api.dashboard.pages.requests import (
    audited,
    context_of,
    membership_of,
    principal_of,
    render,
    require_admin,
    session_of,
)
from cloister_api.errors import ApiError, forbidden
from cloister_api.services.resources.admin_keys import is_valid
from cloister_api.sessions.settings import DashboardSettings

__all__ = ["ROUTES"]


async def show(request: Request) -> Response:
    """Show the keys."""
    require_admin(request)
    return page(request, Form({}))


def page(request: Request, form: Form, problem: ApiError | None = None) -> Response:
    """Return the page with what was typed, and why that was not done."""
    context, principal = context_of(request), principal_of(request)
    now = context.clock()
    keys = context.admin_key_desk.of(principal)
    return render(
        request,
        "admin_keys.html",
        code=200 if problem is None else problem.status,
        member=membership_of(request),
        typed=form,
        problem=problem,
        keys=[(key, is_valid(key, now)) for key in keys],
    )


def require_recent(request: Request) -> None:
    """Let go on who signed in a short while ago.

    Raises
    ------
    ApiError
        403.
    """
    settings: DashboardSettings = request.app.state.settings
    minutes = settings.session.recent_minutes
    age = context_of(request).clock() - session_of(request).authenticated_at
    if age > timedelta(minutes=minutes):
        raise forbidden(
            f"you signed in more than {minutes} minutes ago; sign in again to create or see a key"
        )


async def create(request: Request) -> Response:
    """Create a key."""
    context, principal = context_of(request), principal_of(request)
    form = await read_form(request, seconds=context.settings.limits.body_seconds)
    written = audited(request, "admin_key.create", form.get("name"), success=201)
    try:
        async with written:
            require_admin(request)
            require_recent(request)
            key = await context.admin_key_desk.create(
                principal, name=form.get("name"), days=form.get("days")
            )
            written.target = key.id
    except ApiError as error:
        return refused(request, form, error)
    return RedirectResponse(f"/o/{principal.slug}/admin-keys", 303)


async def reveal(request: Request) -> Response:
    """Return the value of a key as plain text."""
    context, principal = context_of(request), principal_of(request)
    key_id = request.path_params["id"]
    try:
        async with audited(request, "admin_key.reveal", key_id):
            require_admin(request)
            require_recent(request)
            value = await context.admin_key_desk.reveal(principal, key_id)
    except ApiError as error:
        return refused(request, Form({}), error)
    return PlainTextResponse(f"{value}\n", headers={"cache-control": "no-store"})


async def revoke(request: Request) -> Response:
    """Revoke a key."""
    context, principal = context_of(request), principal_of(request)
    key_id = request.path_params["id"]
    try:
        async with audited(request, "admin_key.revoke", key_id):
            require_admin(request)
            await context.admin_key_desk.revoke(principal, key_id)
    except ApiError as error:
        return refused(request, Form({}), error)
    return RedirectResponse(f"/o/{principal.slug}/admin-keys", 303)


def refused(request: Request, form: Form, problem: ApiError) -> Response:
    """Return the page with why something was not done.

    Raises
    ------
    ApiError
        That, for who may not see the page.
    """
    try:
        require_admin(request)
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
