"""The dashboard as an ASGI application next to the API, on its own listener."""

import asyncio
import functools
from http import HTTPStatus

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from cloister_api.auth.admin_keys import CallerRates
from cloister_api.dashboard.guard import DashboardGuard, cookie_name
from cloister_api.dashboard.live import Feed, SessionWatch
from cloister_api.dashboard.pages import (
    admin_keys,
    api_keys,
    container_forms,
    containers,
    information,
    members,
    resources,
    sign_in,
    stream,
)
from cloister_api.dashboard.rendering import Pages
from cloister_api.dashboard.session_api import SessionApi
from cloister_api.errors import ApiError, from_framework, from_kube
from cloister_api.http.metrics import HttpMetrics
from cloister_api.http.middleware import Callers, Shutdown, needs_key
from cloister_api.ledger.keys.sessions import SessionRow
from cloister_api.routes.dependencies import running_context
from cloister_api.sessions.settings import DashboardSettings
from cloister_clients.kube import KubeError

ROUTES = (
    *sign_in.ROUTES,
    *stream.ROUTES,
    *information.ORGANIZATION_ROUTES,
    *container_forms.NEW_ROUTES,
    *containers.LIST_ROUTES,
    *containers.DETAIL_ROUTES,
    *container_forms.SETTINGS_ROUTES,
    *resources.DEPLOYMENT_ROUTES,
    *containers.ACTION_ROUTES,
    *admin_keys.ROUTES,
    *members.ROUTES,
    *api_keys.ROUTES,
    *information.USAGE_ROUTES,
    *information.INFORMATION_ROUTES,
    *resources.SECRET_ROUTES,
    *resources.SSH_KEY_ROUTES,
    *resources.DOMAIN_ROUTES,
    *resources.REGISTRY_ROUTES,
)
"""Routes of all pages."""


class ByListener:
    """Passes requests to the dashboard or to the API, by the port at which they arrived.

    Parameters
    ----------
    api
        The API, which has the lifespan of both.
    """

    def __init__(self, api: ASGIApp, dashboard: ASGIApp, port: int) -> None:
        self._api = api
        self._dashboard = dashboard
        self._port = port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        arrived = scope.get("server")
        here = scope["type"] == "http" and arrived is not None and arrived[1] == self._port
        await (self._dashboard if here else self._api)(scope, receive, send)


def dashboard_app(
    api: FastAPI,
    settings: DashboardSettings,
    *,
    callers: Callers,
    metrics: HttpMetrics,
    shutdown: Shutdown,
) -> ASGIApp:
    """Build the dashboard: its pages, and the API for who is signed in.

    Parameters
    ----------
    api
        The API, in whose state pages find what runs, with its guard.
    shutdown
        Begins when the process must exit.
    """
    pages = Pages()

    async def find(value: str, *, used: bool) -> SessionRow | None:
        return await running_context(api).sessions.find(value, used=used)

    def cookie() -> str:
        return cookie_name(running_context(api).installation.service)

    app = Starlette(
        routes=[Route("/static/{digest}/{name}", _static), *ROUTES],
        exception_handlers={
            ApiError: _on_api_error,
            KubeError: _on_kube_error,
            HTTPException: _on_http_error,
        },
    )
    app.state.api, app.state.pages, app.state.settings = api, pages, settings
    # Built at its first use, since the context exists only while the API runs.
    app.state.feed = functools.cache(lambda: feed_of(api, settings, shutdown))

    def error_page(error: ApiError, request_id: str, session: SessionRow | None) -> Response:
        return problem_page(pages, error, request_id, session)

    app.state.error_page = error_page
    guard = DashboardGuard(
        app,
        settings=settings,
        find=find,
        cookie=cookie,
        take=functools.partial(count_session, api),
        callers=callers,
        error_page=error_page,
        metrics=metrics,
        shutdown=shutdown,
    )
    for_sessions = SessionApi(
        api,
        settings=settings,
        find=find,
        cookie=cookie,
        sessions=lambda: running_context(api).sessions,
    )

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        await (for_sessions if needs_key(scope["path"]) else guard)(scope, receive, send)

    return serve


def count_session(
    api: FastAPI, session: SessionRow, /, *, writes: bool
) -> tuple[tuple[str, str], ...]:
    """Count a request of a session, and return the headers of its rates.

    A write counts for the user: whether they may write to the organization of the page is judged
    later.

    Raises
    ------
    ApiError
        429 when there are too many.
    """
    replicas = running_context(api).accounts.key_cache.facades
    rates: CallerRates = api.state.rates
    writer = f"user {session.user}" if writes else None
    return rates.consume(session.id, writer, replicas, asyncio.get_running_loop().time())


def feed_of(api: FastAPI, settings: DashboardSettings, shutdown: Shutdown) -> Feed:
    """Return a feed of what runs, which there is at the first request and no earlier."""
    streams = settings.streams
    context = running_context(api)
    feed = Feed(
        context.cache,
        per_session=streams.per_session,
        per_user=streams.per_user,
        per_process=streams.per_process,
    )
    watch = SessionWatch(feed, context.sessions.over)
    watch.start()
    shutdown.listeners.append(watch.end)
    return feed


def problem_page(
    pages: Pages, error: ApiError, request_id: str, session: SessionRow | None
) -> Response:
    """Return the page of an error."""
    values = {
        "title": HTTPStatus(error.status).phrase,
        "message": error.message,
        "request_id": request_id,
        "retry_after": error.retry_after,
        "session": session,
    }
    page = pages.page("problem.html", values, error.status)
    for name, value in error.headers:
        page.headers[name] = value
    if error.retry_after is not None:
        page.headers["retry-after"] = str(error.retry_after)
    return page


async def _static(request: Request) -> Response:
    """Return a static file."""
    pages: Pages = request.app.state.pages
    found = pages.static.get(request.url.path)
    if found is None:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    return found.response(request.headers.get("accept-encoding", ""))


async def _on_api_error(request: Request, error: Exception) -> Response:
    """Return the page of a service's refusal."""
    assert isinstance(error, ApiError)
    state = request.scope["state"]
    page: Response = request.app.state.error_page(error, state["request_id"], state["session"])
    return page


async def _on_kube_error(request: Request, error: Exception) -> Response:
    """Return the page of a refusal of the cluster."""
    assert isinstance(error, KubeError)
    return await _on_api_error(request, from_kube(error))


async def _on_http_error(request: Request, error: Exception) -> Response:
    """Return the page of an unknown path or method."""
    assert isinstance(error, HTTPException)
    return await _on_api_error(request, from_framework(error))
