"""The organizations of who is signed in."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from cloister_api.dashboard.pages.requests import context_of, render, session_of

__all__ = ["ROUTES"]


async def home(_: Request) -> Response:
    """Go to the organizations."""
    return RedirectResponse("/organizations", 303)


async def organizations(request: Request) -> Response:
    """Show them; where there is one, go there."""
    found = context_of(request).sessions.memberships(session_of(request).user)
    if len(found) == 1 and "all" not in request.query_params:
        slug = found[0].organization.metadata.name
        return RedirectResponse(f"/o/{slug}/containers", 303)
    return render(request, "organizations.html", memberships=found)


ROUTES = (Route("/", home), Route("/organizations", organizations))
"""Routes of the module."""
