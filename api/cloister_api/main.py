"""The facade as an ASGI application: routes, the guard in front of them, one form of errors."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.telemetry import TelemetryConfig
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from cloister_api.auth.admin_keys import CallerRates
from cloister_api.auth.authenticator import Principal
from cloister_api.auth.token_bucket import RateLimit
from cloister_api.cache import CachedEnclave
from cloister_api.collateral import CollateralMetrics
from cloister_api.context import FIELD_MANAGER, background, running
from cloister_api.errors import (
    ApiError,
    error_response,
    from_framework,
    from_kube,
    from_validation,
    request_id_of,
)
from cloister_api.http.bodies import MAX_REPORT
from cloister_api.http.metrics import HttpMetrics
from cloister_api.http.middleware import Callers, OpenPath, RequestGuard, Shutdown
from cloister_api.installation import PublishedInstallation
from cloister_api.openapi import document as reference
from cloister_api.routes import (
    audit,
    billing,
    containers,
    enclaves,
    keys,
    logs,
    organization,
    platform,
    resources,
)
from cloister_api.routes.dependencies import running_context
from cloister_api.settings import ApiSettings
from cloister_api.usage.ingest import PATH as REPORT_PATH
from cloister_api.usage.ingest import SignedReport
from cloister_api.utilization.gpus import HostGpuMetrics
from cloister_clients.kube import KubeClient, KubeConfig, KubeError

logger = logging.getLogger(__name__)

ROUTERS: tuple[APIRouter, ...] = (
    enclaves.shim_router,
    containers.router,
    logs.router,
    enclaves.certificates_router,
    keys.router,
    platform.catalog_router,
    resources.deployments_router,
    resources.secrets_router,
    resources.ssh_keys_router,
    resources.domains_router,
    resources.registry_credentials_router,
    organization.router,
    platform.releases_router,
    billing.reports_router,
    billing.router,
    audit.router,
    platform.webhooks_router,
    platform.health_router,
    reference.router,
)

NO_TELEMETRY = TelemetryConfig(tracing=False, metrics=False, logs=False, auto_configure=False)
"""The framework's own follows every caller, and sends paths and texts of errors: a path may hold
the value of a key. Spans of requests are the guard's (`cloister_api.http.access_log`)."""
HOT = {
    ("POST", enclaves.CHECK_PATH): enclaves.CHECK,
    ("GET", containers.LIST.path): containers.LIST,
}
"""Routes of requests that are sent all the time."""


def create_app(
    settings: ApiSettings,
    on_failure: Callable[[], None],
    *,
    metrics: HttpMetrics | None = None,
    shutdown: Shutdown | None = None,
) -> FastAPI:
    """Build the API; its lifespan starts what it needs.

    Parameters
    ----------
    on_failure
        Called when the facade can no longer follow the cluster or the ledger; the process must
        exit then, so that it is restarted.
    metrics
        Counts requests; None if nobody reads the metrics.
    shutdown
        Begins when the process must exit; None if nobody reports it.
    """
    metrics, shutdown = metrics or HttpMetrics(), shutdown or Shutdown()
    rates = rates_of(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        stop = asyncio.Event()
        serving = asyncio.create_task(serve_installation(app, settings, on_failure, stop))
        try:
            yield
        finally:
            stop.set()
            await serving

    app = FastAPI(
        title="Cloister Admin API",
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        telemetry=NO_TELEMETRY,
        # Including the routers would build each route a second time, within the first request.
        routes=[route for router in ROUTERS for route in router.routes],
    )
    app.state.routers, app.state.rates = ROUTERS, rates

    async def authenticate(authorization: str | None) -> Principal:
        principal: Principal = await running_context(app).authenticate(authorization)
        return principal

    def take(principal: Principal, *, writes: bool) -> tuple[tuple[str, str], ...]:
        replicas = app.state.context.accounts.key_cache.facades
        writer = principal.slug if writes else None
        return rates.consume(principal.caller, writer, replicas, asyncio.get_running_loop().time())

    metrics.follow(lambda: getattr(getattr(app.state, "context", None), "cache", None))
    app.state.shutdown, app.state.metrics = shutdown, metrics
    app.state.context, app.state.waits_for = None, lambda: "the facade is starting"
    metrics.follow_readiness(lambda: not platform.unready_reasons(app.state))
    app.add_middleware(
        RequestGuard,
        authenticate=authenticate,
        take=take,
        callers=Callers(settings.limits, open_paths(app)),
        metrics=metrics,
        shutdown=shutdown,
        hot=HOT,
        literal=literal_methods(),
        follow_callers=settings.tracing is not None and settings.tracing.follow_callers,
    )
    for kind, handler in HANDLERS:
        app.add_exception_handler(kind, handler)
    return app


def rates_of(settings: ApiSettings) -> CallerRates:
    """Return the rate limits of callers."""
    keys, writes = settings.admin_keys, settings.limits
    per_second = writes.organization_writes_per_second
    return CallerRates(
        RateLimit(keys.rate_per_second, keys.burst) if keys.rate_per_second else None,
        RateLimit(per_second, writes.organization_write_burst) if per_second else None,
    )


async def serve_installation(
    app: FastAPI, settings: ApiSettings, on_failure: Callable[[], None], stop: asyncio.Event
) -> None:
    """Wait for the settings that the operator publishes, and serve until they change or to the end.

    Parameters
    ----------
    app
        The application; requests find the context in its state.
    on_failure
        Called when the process must exit: what it needs has failed, or other settings hold.
    stop
        Set when no request is served any more.
    """
    try:
        async with KubeClient(
            KubeConfig.load(settings.kubeconfig, settings.kube_context),
            field_manager=FIELD_MANAGER,
            user_agent=FIELD_MANAGER,
        ) as client:
            published = PublishedInstallation(client, settings.operator_namespace)
            app.state.waits_for = lambda: published.missing
            async with background(on_failure, published.run()):
                await either(published.published(), stop)
                installation = published.present
                if installation is None or stop.is_set():
                    return
                async with running(settings, installation, client, on_failure) as context:
                    app.state.context = context
                    app.state.metrics.registry.register(HostGpuMetrics(context.gpus))
                    app.state.metrics.registry.register(context.state_metrics)
                    app.state.metrics.registry.register(CollateralMetrics(context.collateral.cache))
                    # Services are built from these settings; a restart is simpler than changing all
                    # of them.
                    await either(published.changed(installation), stop)
                    if not stop.is_set():
                        logger.warning("the operator's settings changed; the facade starts again")
                        on_failure()
                        await stop.wait()
    except Exception:
        logger.critical("the facade cannot serve; it stops", exc_info=True)
        on_failure()


async def either(wait: Coroutine[None, None, object], stop: asyncio.Event) -> None:
    """Wait for something, or until the facade stops."""
    tasks = [asyncio.create_task(wait), asyncio.create_task(stop.wait())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def open_paths(app: FastAPI) -> dict[str, OpenPath]:
    """Return the paths with callers of their own, and how their headers are judged."""

    async def enclave(headers: Headers) -> CachedEnclave:
        return await running_context(app).certificates.holder(headers.get("authorization"))

    async def report(headers: Headers) -> SignedReport:
        return await running_context(app).accounts.ingest.admit(headers)

    async def release(headers: Headers) -> str:
        return await running_context(app).release_webhooks.admit(headers)

    async def payment(headers: Headers) -> str:
        return await running_context(app).payments.admit_webhook(headers)

    return {
        enclaves.CHECK_PATH: OpenPath(),
        enclaves.PATH: OpenPath(enclave),
        enclaves.COLLATERAL_PATH: OpenPath(enclave),
        REPORT_PATH: OpenPath(report, MAX_REPORT),
        platform.RELEASES_PATH: OpenPath(release),
        platform.STRIPE_PATH: OpenPath(payment),
    }


async def on_api_error(request: Request, error: Exception) -> Response:
    """Return the response of a service's refusal."""
    assert isinstance(error, ApiError)
    return error_response(error, request_id_of(request))


async def on_kube_error(request: Request, error: Exception) -> Response:
    """Return the response of a refusal of the cluster that no service expected."""
    assert isinstance(error, KubeError)
    logger.warning("request %s: %s", request_id_of(request), error)
    return error_response(from_kube(error), request_id_of(request))


async def on_invalid(request: Request, error: Exception) -> Response:
    """Return the response of an invalid body."""
    assert isinstance(error, RequestValidationError)
    return error_response(from_validation(error), request_id_of(request))


async def on_framework(request: Request, error: Exception) -> Response:
    """Return the response of an unknown path or method."""
    assert isinstance(error, HTTPException)
    headers = {}
    if error.status_code == 405:  # noqa: PLR2004 - the status itself
        headers["allow"] = ", ".join(sorted(allowed_methods(request)))
    return error_response(from_framework(error), request_id_of(request), headers)


HANDLERS = (
    (ApiError, on_api_error),
    (KubeError, on_kube_error),
    (RequestValidationError, on_invalid),
    (HTTPException, on_framework),
)
"""Exceptions, and what makes a response of them."""


def literal_methods() -> dict[str, frozenset[str]]:
    """Return the methods of every path without a parameter."""
    methods: dict[str, frozenset[str]] = {}
    for router in ROUTERS:
        for route in router.routes:
            if isinstance(route, Route) and "{" not in route.path:
                known = methods.get(route.path, frozenset())
                methods[route.path] = known | (route.methods or frozenset())
    return methods


def allowed_methods(request: Request) -> set[str]:
    """Return every method of the path of a request."""
    methods: set[str] = set()
    for router in ROUTERS:
        for route in router.routes:
            if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
                methods |= route.methods or set()
    return methods
