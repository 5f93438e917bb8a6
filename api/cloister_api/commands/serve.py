"""``cloister api``: the facade as a process. SIGTERM ends it after the requests it is answering."""

import logging
import signal
import socket
import sys
from pathlib import Path
from types import FrameType

import click
import uvicorn

from cloister_api.catalog import Catalog, CatalogError
from cloister_api.certificates.authority import AuthorityError
from cloister_api.commands.options import config_option, settings_of
from cloister_api.context import check_issuer, material_of
from cloister_api.ledger.database import LedgerError, place_of
from cloister_api.ledger.material import MaterialError
from cloister_api.main import create_app
from cloister_api.services.releases import WebhookError
from cloister_api.settings import ApiSettings
from cloister_clients.kube import ConfigError, KubeConfig

__all__ = ["api"]

STOP_SECONDS = 30
"""How long requests may go on after SIGTERM."""


@click.command()
@config_option
def api(config: Path) -> None:
    """Serve the REST Admin API."""
    settings = settings_of(config)
    logging.basicConfig(
        level=settings.log_level,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        # Told here, in one sentence, rather than as a failed start of the server.
        material_of(settings)
        place_of(settings.ledger)
        Catalog(settings.catalog, settings.service)
        check_issuer(settings)
        KubeConfig.load(settings.kubeconfig, settings.kube_context)
        listener = listen(settings)
    except (
        CatalogError,
        AuthorityError,
        MaterialError,
        WebhookError,
        ConfigError,
        LedgerError,
        OSError,
    ) as error:
        raise click.ClickException(str(error)) from error
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    click.echo(f"listening on http://{shown}:{port}")
    failed = serve(settings, listener)
    if failed:
        raise click.ClickException(failed)


def serve(settings: ApiSettings, listener: socket.socket) -> str:
    """Serve until a signal, and answer why that was no success; empty = it was one."""
    failures: list[str] = []

    def on_failure() -> None:
        failures.append("the facade lost what it cannot work without; the lines above say what")
        signal.raise_signal(signal.SIGTERM)

    server = uvicorn.Server(
        uvicorn.Config(
            create_app(settings, on_failure),
            loop="uvloop",
            http="httptools",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=STOP_SECONDS,
        )
    )
    # The server sends itself the signal again once it has stopped, which would end the process as
    # a failure; a stop that was asked for is none.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ignore)
    with listener:
        server.run(sockets=[listener])
    if not server.started:
        failures.append("the facade could not start; the lines above say why")
    return "; ".join(failures)


def ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing about a signal that was acted upon."""


def listen(settings: ApiSettings) -> socket.socket:
    """Open the socket, so that a port of 0 is known before the first request.

    Raises
    ------
    OSError
        When the address cannot be bound.
    """
    host, port = settings.listen.host, settings.listen.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror}") from error
