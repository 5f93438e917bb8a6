"""``cloister api``: the facade as a process. SIGTERM stops it after the requests in progress."""

import asyncio
import contextlib
import logging
import math
import resource
import signal
import socket
import time
from asyncio import Protocol
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import cast

import click
import uvicorn
from prometheus_client import start_http_server
from starlette.types import ASGIApp
from typing_extensions import override

from cloister_api.catalog import Catalog, CatalogError
from cloister_api.certificates.authority import AuthorityError, check_issuer
from cloister_api.commands.options import config_option, settings_of
from cloister_api.context import material_of
from cloister_api.http.access_log import configure_logging
from cloister_api.http.connections import BoundedProtocol, Connections
from cloister_api.http.metrics import HttpMetrics
from cloister_api.http.middleware import Callers, Shutdown
from cloister_api.ledger.database import LedgerError, place_of
from cloister_api.ledger.keys.key_material import MaterialError
from cloister_api.main import create_app
from cloister_api.payments.settings import PaymentsError, read_secrets
from cloister_api.services.releases import WebhookError
from cloister_api.sessions.provider.settings import read_client_secret
from cloister_api.settings import ApiSettings
from cloister_clients.kube import ConfigError, KubeConfig
from cloister_clients.settings import SettingsError, require_file
from cloister_clients.sources import check_prerequisites
from cloister_clients.telemetry import LogFormat
from cloister_clients.tracing.spans import traced

logger = logging.getLogger(__name__)

RECEIVE_BUFFER = 64 * 1024
"""Bytes that the kernel keeps of each connection until they are read."""
OTHER_FILES = 512
"""Files in addition to client connections: the ledger, the cluster, sources, registries."""


@click.command()
@config_option
def api(config: Path) -> None:
    """Serve the REST Admin API."""
    settings = settings_of(config)
    configure_logging(settings.log_level, settings.log_format)
    try:
        # Reported here, in one sentence, rather than as a failed start of the server.
        check_prerequisites(settings.sources)
        require_file("registry.caFile", settings.registry.ca_file)
        material_of(settings)
        place_of(settings.ledger)
        Catalog(settings.catalog, "")
        check_issuer(settings.certificates, development=settings.development)
        if settings.stripe:
            read_secrets(settings.stripe)
        if settings.dashboard and settings.dashboard.oidc:
            require_file("dashboard.oidc.caFile", settings.dashboard.oidc.ca_file)
            read_client_secret(settings.dashboard.oidc)
        if settings.tracing:
            settings.tracing.check_prerequisites()
        KubeConfig.load(settings.kubeconfig, settings.kube_context)
        listener = listen(settings.listen.host, settings.listen.port)
        dashboard = None
        if settings.dashboard is not None:
            place = settings.dashboard.listen
            dashboard = listen(place.host, place.port)
            require_other_port(listener, dashboard)
    except (
        CatalogError,
        AuthorityError,
        MaterialError,
        WebhookError,
        ConfigError,
        LedgerError,
        PaymentsError,
        SettingsError,
        OSError,
    ) as error:
        raise click.ClickException(str(error)) from error
    # A reader of JSON lines gets nothing else.
    report = logger.info if settings.log_format is LogFormat.JSON else click.echo
    report(f"listening on http://{place_of_socket(listener)}")
    if dashboard is not None:
        report(f"the dashboard listens on http://{place_of_socket(dashboard)}")
    failed = serve(settings, listener, dashboard)
    if failed:
        raise click.ClickException(failed)


def require_other_port(listener: socket.socket, dashboard: socket.socket) -> None:
    """Refuse one port for both, also at two addresses: requests are told apart by it.

    Raises
    ------
    SettingsError
        When they have one port.
    """
    if listener.getsockname()[1] == dashboard.getsockname()[1]:
        raise SettingsError(
            f"dashboard.listen.port: {dashboard.getsockname()[1]} is the port of the API "
            "(listen.port); give the dashboard another one"
        )


def place_of_socket(listener: socket.socket) -> str:
    """Return address and port of a socket as they stand in a URL."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def serve(
    settings: ApiSettings, listener: socket.socket, dashboard: socket.socket | None = None
) -> str:
    """Serve until a signal, and return why that failed; empty if it did not.

    Parameters
    ----------
    dashboard
        Socket of the dashboard; None if there is none.
    """
    failures: list[str] = []

    def on_failure() -> None:
        failures.append("a required background task failed; see the log above")
        signal.raise_signal(signal.SIGTERM)

    metrics, shutdown = HttpMetrics(), Shutdown()
    allow_files(settings.limits.connections)
    connections = Connections(settings.limits, metrics)
    server = Draining(
        uvicorn.Config(
            application(settings, on_failure, metrics, shutdown, dashboard),
            loop="uvloop",
            http=cast("type[Protocol]", partial(BoundedProtocol, connections)),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            # The client's address and scheme are not used, so headers about them are ignored.
            proxy_headers=False,
            timeout_graceful_shutdown=settings.stop.request_seconds,
        ),
        shutdown,
        settings.stop.drain_seconds,
        connections,
    )
    # The server sends itself the signal again once it has stopped, which would end the process as
    # a failure; a requested stop is not a failure.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ignore)
    sockets = [listener, *([dashboard] if dashboard is not None else [])]
    with contextlib.ExitStack() as stack:
        for each in sockets:
            stack.enter_context(each)
        stack.enter_context(metrics_server(settings, metrics))
        stack.enter_context(traced(settings.tracing, "api"))
        server.run(sockets=sockets)
    if not server.started:
        failures.append("the facade could not start; see the log above")
    return "; ".join(failures)


def application(
    settings: ApiSettings,
    on_failure: Callable[[], None],
    metrics: HttpMetrics,
    shutdown: Shutdown,
    dashboard: socket.socket | None,
) -> ASGIApp:
    """Build the API, and the dashboard if there is one."""
    api = create_app(settings, on_failure, metrics=metrics, shutdown=shutdown)
    if settings.dashboard is None or dashboard is None:
        return api
    # Imported where it is needed: templates take a tenth of the start.
    from cloister_api.dashboard.app import ByListener, dashboard_app  # noqa: PLC0415 - see above

    pages = dashboard_app(
        api,
        settings.dashboard,
        callers=Callers(settings.limits, {}),
        metrics=metrics,
        shutdown=shutdown,
    )
    return ByListener(api, pages, dashboard.getsockname()[1])


class Draining(uvicorn.Server):
    """A server that keeps accepting requests for a while after SIGTERM while it is not ready.

    Load balancers need a moment to notice that a replica is not ready; requests that they send
    meanwhile would be lost. A second signal, and SIGINT, stop it without that wait.

    Parameters
    ----------
    shutdown
        Tells the rest of the process that it stops.
    drain_seconds
        Seconds of the wait.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        shutdown: Shutdown,
        drain_seconds: float,
        connections: Connections,
    ) -> None:
        super().__init__(config)
        self._connections = connections
        self._shutdown = shutdown
        self._drain_seconds = drain_seconds
        self._drained_at = math.inf

    @override
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain."""
        if sig != signal.SIGTERM or self._shutdown.begun or not self.started:
            super().handle_exit(sig, frame)
            return
        self._shutdown.begun = True
        self._drained_at = time.monotonic() + self._drain_seconds

    @override
    async def on_tick(self, counter: int) -> bool:
        """End overdue connections, and return whether to stop; called ten times a second."""
        self._connections.end_overdue(asyncio.get_running_loop().time())
        if self._shutdown.begun or self.should_exit:
            self._shutdown.tell()
        return await super().on_tick(counter) or time.monotonic() >= self._drained_at


@contextlib.contextmanager
def metrics_server(settings: ApiSettings, metrics: HttpMetrics) -> Iterator[None]:
    """Serve metrics on their own port while the block runs, in a thread.

    Raises
    ------
    OSError
        When the address cannot be bound.
    """
    host, port = settings.metrics.host, settings.metrics.port
    if port is None:
        yield
        return
    server, thread = start_http_server(port, host, metrics.registry)
    logger.info("metrics are at http://%s:%d/metrics", host, server.server_port)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ignore(number: int, frame: FrameType | None) -> None:
    """Ignore a signal that was handled before."""


def allow_files(connections: int) -> None:
    """Raise the number of files that this process may open, of which connections are a part."""
    wanted = connections + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        if raised < wanted:
            logger.warning(
                "this process may open %d files; limits.connections is %d and needs %d",
                raised,
                connections,
                wanted,
            )


def listen(host: str, port: int) -> socket.socket:
    """Open a socket, so that a port of 0 is known before the first request.

    Raises
    ------
    OSError
        When the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    # Connections inherit it. It bounds what each may hand over before the facade can refuse it.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    return listener
