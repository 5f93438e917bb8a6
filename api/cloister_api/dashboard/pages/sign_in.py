"""Sign in by the OpenID provider or by a one-time link, and sign out."""

import logging
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from cloister_api.dashboard.guard import cookie_in, cookie_name
from cloister_api.dashboard.pages.requests import (
    START,
    THEME,
    context_of,
    render,
    session_of,
    start_address,
)
from cloister_api.dashboard.rendering import read_form
from cloister_api.errors import forbidden, not_found
from cloister_api.ledger.keys.sessions import SessionMethod, SessionRow
from cloister_api.sessions.provider.attempt import LIFE, safe_next
from cloister_api.sessions.provider.refusal import SignInRefused, sentence
from cloister_api.sessions.provider.settings import CALLBACK
from cloister_api.sessions.settings import DashboardSettings

logger = logging.getLogger(__name__)

HOME = "/organizations"
YEAR = 365 * 24 * 3600
"""In seconds."""


async def sign_in(request: Request) -> Response:
    """Show how to sign in, or who is signed in, and why the last try failed."""
    settings: DashboardSettings = request.app.state.settings
    query, service = request.query_params, context_of(request).sign_in
    name = settings.oidc.name if settings.oidc is not None else ""
    elsewhere = None
    if "ended" in query and service is not None:
        elsewhere = await service.sign_out_address(sender_of(request))
    return render(
        request,
        "sign_in.html",
        links=settings.one_time_links,
        provider=name,
        start=start_address(safe_next(query.get("next", "/"))),
        refusal=sentence(query.get("problem", ""), name) if name else "",
        elsewhere=elsewhere,
        mine=await own_sessions(request),
    )


async def choose_theme(request: Request) -> Response:
    """Keep the theme that somebody chose, and go back to the page on which they did."""
    form = await read_form(request, seconds=context_of(request).settings.limits.body_seconds)
    settings: DashboardSettings = request.app.state.settings
    shown = urlsplit(request.headers.get("referer", ""))
    here = f"{shown.scheme}://{shown.netloc}" == settings.address
    place = f"{shown.path}?{shown.query}" if shown.query else shown.path
    response = RedirectResponse(safe_next(place) if here else "/", 303)
    response.set_cookie(
        THEME, form.get("theme"), max_age=YEAR, secure=True, httponly=True, samesite="lax"
    )
    return response


async def own_sessions(request: Request) -> list[SessionRow]:
    """Return the sessions of who is signed in, if anybody is."""
    session: SessionRow | None = request.scope["state"]["session"]
    return [] if session is None else await context_of(request).sessions.of(session.user)


async def end_one(request: Request) -> Response:
    """End another session of who is signed in.

    Raises
    ------
    ApiError
        404 when none of theirs has the identifier.
    """
    for each in await own_sessions(request):
        if each.id == request.path_params["id"]:
            await context_of(request).sessions.end(
                each,
                because="ended by its user",
                request_id=request.scope["state"]["request_id"],
            )
            return RedirectResponse("/session", 303)
    raise not_found("session")


async def start(request: Request) -> Response:
    """Send the browser to the provider."""
    settings: DashboardSettings = request.app.state.settings
    service = context_of(request).sign_in
    if service is None:
        raise not_found("provider")
    recent = "recent" in request.query_params
    max_age = settings.session.recent_minutes * 60 if recent else None
    try:
        begun = await service.begin(
            request.query_params.get("next", "/"), max_age, sender_of(request)
        )
    except SignInRefused as error:
        return await refused(request, error)
    response = RedirectResponse(begun.address, 303, headers={"cache-control": "no-store"})
    keep(response, attempt_cookie(request), begun.cookie, round(LIFE.total_seconds()))
    return response


async def callback(request: Request) -> Response:
    """Sign in whom the provider vouches for. No code stays in the address."""
    context, state = context_of(request), request.scope["state"]
    if context.sign_in is None:
        raise not_found("provider")
    cookie = cookie_in(request.headers, attempt_cookie(request))
    try:
        found = await context.sign_in.finish(
            request.query_params.multi_items(), cookie, sender_of(request)
        )
    except SignInRefused as error:
        response = await refused(request, error)
    else:
        session, value = await context.sessions.begin_by_provider(
            found.user,
            authenticated_at=found.authenticated_at,
            agent=request.headers.get("user-agent", ""),
            request_id=state["request_id"],
        )
        response = await signed_in(request, session, value, found.next)
    # An attempt counts once in a browser, whatever came of it.
    forget(response, attempt_cookie(request))
    return response


async def refused(request: Request, error: SignInRefused) -> Response:
    """Record why a sign-in failed, and lead to the page that says so."""
    request_id = request.scope["state"]["request_id"]
    logger.warning("a sign-in by the provider failed: %s", error)
    await context_of(request).sessions.refuse(
        error.reason.value, error.subject, request_id=request_id
    )
    return RedirectResponse(f"/session?problem={error.reason.value}", 303)


async def signed_in(
    request: Request, session: SessionRow, value: str, path: str = HOME
) -> Response:
    """Put a new session in place of the previous one, and redirect to a page."""
    context, state = context_of(request), request.scope["state"]
    if state["session"] is not None:
        because = "signed in again in the same browser"
        await context.sessions.end(
            state["session"], because=because, request_id=state["request_id"]
        )
    response = RedirectResponse(path, 303)
    life = session.ends_at - session.created_at
    keep(response, cookie_name(context.installation.service), value, round(life.total_seconds()))
    return response


async def show_link(request: Request) -> Response:
    """Show whom a link signs in. Previews of messages open links: this changes nothing."""
    _require_links(request)
    user = await context_of(request).sessions.user_of_link(request.path_params["token"])
    return render(request, "once.html", user=user)


async def use_link(request: Request) -> Response:
    """Sign in by a link."""
    _require_links(request)
    session, value = await context_of(request).sessions.begin_by_link(
        request.path_params["token"],
        agent=request.headers.get("user-agent", ""),
        request_id=request.scope["state"]["request_id"],
    )
    return await signed_in(request, session, value)


async def sign_out(request: Request) -> Response:
    """End the session, also one that has just expired."""
    context = context_of(request)
    to = "/session"
    if request.scope["state"]["session"] is not None:
        session = session_of(request)
        await context.sessions.end(
            session, because="signed out", request_id=request.scope["state"]["request_id"]
        )
        # At the provider the person is signed in still.
        to = "/session?ended" if session.method is SessionMethod.OIDC else to
    response = RedirectResponse(to, 303)
    forget(response, cookie_name(context.installation.service))
    response.headers["clear-site-data"] = '"cache"'
    return response


def sender_of(request: Request) -> str:
    """Return where a request comes from, for shares only: without a proxy it can be made up.

    A proxy appends the address of its own client to X-Forwarded-For.
    """
    forwarded = ",".join(request.headers.getlist("x-forwarded-for")).rpartition(",")[2].strip()
    peer = request.client.host if request.client is not None else ""
    return forwarded or peer


def attempt_cookie(request: Request) -> str:
    """Return the name of the cookie that keeps an attempt to sign in."""
    return f"{cookie_name(context_of(request).installation.service)}-signin"


def keep(response: Response, name: str, value: str, seconds: int) -> None:
    """Have the browser keep a cookie, only for this host and out of reach of scripts."""
    response.set_cookie(
        name, value, max_age=seconds, path="/", secure=True, httponly=True, samesite="lax"
    )


def forget(response: Response, name: str) -> None:
    """Have the browser forget a cookie."""
    response.delete_cookie(name, path="/", secure=True, httponly=True)


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
    Route(START, start),
    Route(CALLBACK, callback),
    Route("/session/theme", choose_theme, methods=["POST"]),
    Route("/session/end", sign_out, methods=["POST"]),
    Route("/session/end/{id}", end_one, methods=["POST"]),
    Route("/session/once/{token}", show_link),
    Route("/session/once/{token}", use_link, methods=["POST"]),
)
"""Routes of the module."""
