"""Sign in by a one-time link, and sign out."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from cloister_api.dashboard.guard import cookie_name
from cloister_api.dashboard.pages.requests import context_of, render, session_of
from cloister_api.errors import forbidden
from cloister_api.sessions.settings import DashboardSettings

__all__ = ["ROUTES"]

HOME = "/organizations"


async def sign_in(request: Request) -> Response:
    """Show how to sign in, or who is signed in."""
    settings: DashboardSettings = request.app.state.settings
    return render(request, "sign_in.html", links=settings.one_time_links)


async def show_link(request: Request) -> Response:
    """Show whom a link signs in. Previews of messages open links: this changes nothing."""
    _require_links(request)
    user = await context_of(request).sessions.user_of_link(request.path_params["token"])
    return render(request, "once.html", user=user)


async def use_link(request: Request) -> Response:
    """Sign in by a link."""
    _require_links(request)
    context, state = context_of(request), request.scope["state"]
    session, value = await context.sessions.begin_by_link(
        request.path_params["token"],
        agent=request.headers.get("user-agent", ""),
        request_id=state["request_id"],
    )
    if state["session"] is not None:
        because = "signed in again in the same browser"
        await context.sessions.end(
            state["session"], because=because, request_id=state["request_id"]
        )
    response = RedirectResponse(HOME, 303)
    response.set_cookie(
        cookie_name(context.installation.service),
        value,
        max_age=round((session.ends_at - session.created_at).total_seconds()),
        path="/",
        secure=True,
        httponly=True,
        samesite="lax",
    )
    return response


async def sign_out(request: Request) -> Response:
    """End the session, also of one that has just ended by itself."""
    context = context_of(request)
    if request.scope["state"]["session"] is not None:
        await context.sessions.end(
            session_of(request),
            because="signed out",
            request_id=request.scope["state"]["request_id"],
        )
    response = RedirectResponse("/session", 303)
    response.delete_cookie(
        cookie_name(context.installation.service), path="/", secure=True, httponly=True
    )
    response.headers["clear-site-data"] = '"cache"'
    return response


def _require_links(request: Request) -> None:
    """Refuse one-time links where the installation has switched them off.

    Raises
    ------
    ApiError
        403.
    """
    settings: DashboardSettings = request.app.state.settings
    if not settings.one_time_links:
        raise forbidden("this installation accepts no one-time links (dashboard.oneTimeLinks)")


ROUTES = (
    Route("/session", sign_in),
    Route("/session/end", sign_out, methods=["POST"]),
    Route("/session/once/{token}", show_link),
    Route("/session/once/{token}", use_link, methods=["POST"]),
)
"""Routes of the module."""
