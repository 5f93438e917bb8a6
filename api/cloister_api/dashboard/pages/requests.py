"""What every page takes from a request, and how it answers."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from cloister_api.auth.authenticator import Principal
from cloister_api.auth.roles import RIGHTS, RoleRight, require
from cloister_api.context import Context
from cloister_api.dashboard.rendering import Form, Pages, read_form
from cloister_api.dashboard.rows import navigation_of
from cloister_api.errors import ApiError, from_kube, from_model
from cloister_api.http.middleware import SAFE_METHODS
from cloister_api.ledger.keys.sessions import SessionRow
from cloister_api.routes.audit import AuditedWrite
from cloister_api.routes.dependencies import running_context
from cloister_api.sessions.sessions import Membership, is_recent, not_recent
from cloister_api.sessions.settings import DashboardSettings
from cloister_clients.kube import KubeError

Write = Callable[[Form, AuditedWrite], Awaitable[str | Response]]
"""Does what a form requests, and returns the address of the page after it, or a response."""
Again = Callable[[Request, Form, ApiError], Awaitable[Response]]
"""Returns the page of a form with what was typed, and why that was not done."""

Change = Callable[[Context, Principal, Form], Awaitable[str | None]]
"""Does what a form requests, and returns the identifier of what it made; None means nothing new."""

START = "/session/start"
"""Path at which a sign-in by the provider begins."""


@dataclass(frozen=True, slots=True)
class SignInAgain:
    """What to tell somebody whose sign-in is not recent."""

    minutes: int
    """For how many minutes a sign-in is recent."""
    address: str
    """Address of the link to the provider; empty if there is none, and a new one-time link is
    needed."""


@dataclass(frozen=True, slots=True)
class LivePage:
    """How a page keeps itself current."""

    stream: str
    """Address of its stream; empty if it has none."""
    every: int
    """Seconds after which it fetches itself in any case; 0 if never."""


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
    moment_of(request)
    user = session_of(request).user
    return context_of(request).sessions.membership(user, request.path_params["slug"])


def moment_of(request: Request) -> str:
    """Return how far the feed was when a page of an organization began to be made."""
    moment: str = request.scope["state"].setdefault("moment", request.app.state.feed().moment)
    return moment


def require_right(request: Request, right: RoleRight = RoleRight.ADMINISTER) -> None:
    """Admit only who has a right in the organization.

    Raises
    ------
    ApiError
        403 for a role without it, 404 as `membership_of`.
    """
    require(membership_of(request).role, right)


def right_of_page(path: str) -> RoleRight:
    """Return what the forms of a page require: deleting a container requires more."""
    deploys = path.split("/")[3:4] in (["containers"], ["deployments"])
    return RoleRight.DEPLOY if deploys else RoleRight.ADMINISTER


def has_right(request: Request, right: RoleRight) -> bool:
    """Return whether who is signed in has a right in the organization."""
    return right in RIGHTS[membership_of(request).role]


def signed_in_recently(request: Request) -> bool:
    """Return whether who is signed in proved a short while ago who they are."""
    settings: DashboardSettings = request.app.state.settings
    now = context_of(request).clock()
    return is_recent(session_of(request).authenticated_at, now, settings.session)


def require_recent(request: Request) -> None:
    """Let go on who proved a short while ago who they are.

    Raises
    ------
    ApiError
        403.
    """
    if not signed_in_recently(request):
        settings: DashboardSettings = request.app.state.settings
        raise not_recent(settings.session)


def sign_in_again(request: Request, path: str) -> SignInAgain | None:
    """Return how to sign in again for what needs a recent sign-in; None if there is no need."""
    if signed_in_recently(request):
        return None
    settings: DashboardSettings = request.app.state.settings
    address = start_address(path, recent=True) if settings.oidc is not None else ""
    return SignInAgain(settings.session.recent_minutes, address)


def start_address(path: str, *, recent: bool = False) -> str:
    """Return the address of the link that begins a sign-in by the provider.

    Parameters
    ----------
    path
        Page to go to afterwards.
    recent
        Whether the person must have proven recently who they are.
    """
    query = {} if path == "/" else {"next": path}
    if recent:
        query["recent"] = ""
    return f"{START}?{urlencode(query, safe='/')}" if query else START


def principal_of(request: Request) -> Principal:
    """Return who sends a request, as services want it.

    Raises
    ------
    ApiError
        404 as `membership_of`.
    """
    session, member = session_of(request), membership_of(request)
    principal = Principal("", session.user, member.organization, session.id, role=member.role)
    request.scope["state"]["principal"] = principal
    return principal


def audited(request: Request, action: str, target: str, *, success: int = 200) -> AuditedWrite:
    """Return a write that leaves its row in the audit trail."""
    request_id = request.scope["state"]["request_id"]
    return AuditedWrite(
        context_of(request), principal_of(request), request_id, action, target, success=success
    )


async def submit(
    request: Request,
    action: str,
    target: str,
    write: Write,
    again: Again,
    *,
    success: int = 200,
    right: RoleRight = RoleRight.ADMINISTER,
) -> Response:
    """Do what a form requests, and redirect to another page.

    Parameters
    ----------
    target
        What it is done to; empty means the field ``name`` or ``domain`` of the form.
    again
        Returns the page with why it was not done.
    success
        HTTP status of the same by the REST API, for the audit trail.
    right
        What it requires.
    """
    form = await read_form(request, seconds=context_of(request).settings.limits.body_seconds)
    written = audited(
        request, action, target or form.get("name") or form.get("domain"), success=success
    )
    try:
        async with written:
            require_right(request, right)
            try:
                done = await write(form, written)
            except ValidationError as error:
                raise from_model(error) from error
    except KubeError as error:
        return await again(request, form, from_kube(error))
    except ApiError as error:
        return await again(request, form.refused(error), error)
    return RedirectResponse(done, 303) if isinstance(done, str) else done


async def change(
    request: Request,
    action: str,
    target: str,
    do: Change,
    again: Again,
    *,
    then: str,
    success: int = 200,
) -> Response:
    """Do what a form requests, as an administrator, and redirect to a page of the organization.

    Parameters
    ----------
    request, action, target, again, success
        As `submit` takes them.
    then
        Last part of the address of the page after it.
    """

    async def write(form: Form, written: AuditedWrite) -> str:
        principal = principal_of(request)
        written.target = await do(context_of(request), principal, form) or written.target
        return f"/o/{principal.slug}/{then}"

    return await submit(request, action, target, write, again, success=success)


THEME = "__Host-theme"
"""Cookie of the theme; without it that of the system is shown."""
THEMES = frozenset({"light", "dark"})


def theme_of(request: Request) -> str:
    """Return the theme that somebody has chosen; empty for that of their system."""
    theme = request.cookies.get(THEME, "")
    return theme if theme in THEMES else ""


def render(
    request: Request,
    template: str,
    *,
    code: int = 200,
    problem: ApiError | None = None,
    parts: Collection[str] = (),
    every: int = 0,
    **values: Any,
) -> Response:
    """Return a page for who is signed in, if anybody is.

    Parameters
    ----------
    problem
        Why something was not done, which decides the status; None if everything was.
    parts
        What the page shows, by the feed's names: it fetches itself when one of them changes.
    every
        Seconds after which it fetches itself in any case; 0 if never.
    """
    pages: Pages = request.app.state.pages
    shared: dict[str, Any] = {
        "session": request.scope["state"]["session"],
        "problem": problem,
        "theme": theme_of(request),
    }
    if "slug" in request.path_params and shared["session"] is not None:
        member = membership_of(request)
        slug = member.organization.metadata.name
        shared |= {
            "member": member,
            "slug": slug,
            # Whether the forms of the page are for this role.
            "administrator": right_of_page(request.url.path) in RIGHTS[member.role],
            "may_audit": RoleRight.AUDIT in RIGHTS[member.role],
            "navigation": navigation_of(slug, member.role, request.url.path),
        }
        # The address of a form is none that a page could fetch itself from.
        if request.method in SAFE_METHODS and (parts or every):
            query = urlencode([*(("part", each) for each in parts), ("since", moment_of(request))])
            shared["live"] = LivePage(f"/o/{slug}/events?{query}" if parts else "", every)
    status = code if problem is None else problem.status
    return pages.page(template, {**shared, **values}, status)
