"""What every page takes from a request, and how it answers."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from cloister_api.auth.authenticator import Principal
from cloister_api.context import Context
from cloister_api.dashboard.rendering import Pages
from cloister_api.errors import forbidden
from cloister_api.ledger.keys.sessions import SessionRow
from cloister_api.routes.audit import AuditedWrite
from cloister_api.routes.dependencies import running_context
from cloister_api.sessions.sessions import Membership
from cloister_crds.kinds.organization import Role

__all__ = [
    "audited",
    "context_of",
    "membership_of",
    "principal_of",
    "render",
    "require_admin",
    "session_of",
]

MEMBERS_READ = (
    "you are a member of this organization, and members only read; an administrator of it can do "
    "this, or make you one"
)


def context_of(request: Request) -> Context:
    """Return what the facade has; 503 where it has nothing yet."""
    return running_context(request.app.state.api)


def session_of(request: Request) -> SessionRow:
    """Return who is signed in; the guard has let nobody else in."""
    session: SessionRow = request.scope["state"]["session"]
    return session


def membership_of(request: Request) -> Membership:
    """Return what who is signed in is in the organization of the path.

    Raises
    ------
    ApiError
        404 when there is no such organization, or it does not name the user.
    """
    user = session_of(request).user
    return context_of(request).sessions.membership(user, request.path_params["slug"])


def require_admin(request: Request) -> None:
    """Let administrators of the organization alone go on: members read.

    Raises
    ------
    ApiError
        403 for a member, 404 as `membership_of`.
    """
    if membership_of(request).role is not Role.ADMIN:
        raise forbidden(MEMBERS_READ)


def principal_of(request: Request) -> Principal:
    """Return who sends a request, as services want it.

    Raises
    ------
    ApiError
        404 as `membership_of`.
    """
    session, member = session_of(request), membership_of(request)
    principal = Principal("", session.user, member.organization, session.id)
    request.scope["state"]["principal"] = principal
    return principal


def audited(request: Request, action: str, target: str, *, success: int = 200) -> AuditedWrite:
    """Return a write that leaves its row in the audit trail."""
    request_id = request.scope["state"]["request_id"]
    return AuditedWrite(
        context_of(request), principal_of(request), request_id, action, target, success=success
    )


def render(request: Request, template: str, *, code: int = 200, **values: Any) -> Response:
    """Return a page for who is signed in, if anybody is, with an HTTP status."""
    pages: Pages = request.app.state.pages
    return pages.page(template, {"session": request.scope["state"]["session"], **values}, code)
