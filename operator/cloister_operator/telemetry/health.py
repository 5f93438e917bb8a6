"""Liveness, readiness and metrics over HTTP, heartbeats, and the log."""

import logging
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import override

from cloister_clients.clock import monotonic
from cloister_clients.telemetry import JsonFormatter, LineFormatter, LogFormat
from cloister_clients.tracing.spans import trace_id
from cloister_operator.settings import HealthSettings, LogSettings
from cloister_operator.telemetry.metrics import OperatorMetrics


class Stage(StrEnum):
    """How far the process is."""

    STANDBY = "standby"
    """It waits for the Lease."""
    SYNCING = "syncing"
    """It leads, and its informer cache has not synced yet."""
    WORKING = "working"
    """It leads and reconciles."""
    STOPPING = "stopping"
    """It was told to stop."""


@dataclass(slots=True)
class Liveness:
    """The heartbeats of one process."""

    stale: float
    """Seconds after which a heartbeat is too old."""
    clock: Callable[[], float] = monotonic
    """Clock of the heartbeats, in seconds."""
    stage: Stage = Stage.STANDBY
    """How far the process is."""
    _heartbeats: dict[str, tuple[float, float]] = field(default_factory=dict)
    _problems: dict[str, str] = field(default_factory=dict)

    def heartbeat(self, what: str, *, stale: float | None = None) -> None:
        """Record that a part of the process made progress just now.

        Parameters
        ----------
        what
            The part, as `unhealthy_reason` names it.
        stale
            Seconds after which the heartbeat is too old; None means as for all.
        """
        self._heartbeats[what] = (self.clock(), self.stale if stale is None else stale)

    def report_problem(self, what: str, text: str) -> None:
        """Record a problem of a part; an empty text clears it."""
        if text:
            self._problems[what] = text
        else:
            self._problems.pop(what, None)

    def unhealthy_reason(self) -> str:
        """Return what has a problem or was silent for too long; empty if the process is healthy."""
        now = self.clock()
        silent = [
            f"{what} silent for {now - seen:.0f} s"
            for what, (seen, stale) in sorted(self._heartbeats.items())
            if now - seen > stale
        ]
        return "; ".join([*silent, *(text for _, text in sorted(self._problems.items()))])


CURRENT_OBJECT: ContextVar[str] = ContextVar("object", default="")
"""The object that is reconciled; empty if none is."""
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_QUIET = ("kopf.objects", "httpx", "httpcore", "asyncio", "aiohttp")
"""Loggers of libraries that log each request; only their warnings are written."""


class _ObjectFilter(logging.Filter):
    """Adds the object that is reconciled, and the trace, to every record."""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Add them."""
        record.object = CURRENT_OBJECT.get()
        record.trace_id = trace_id()
        return True


def configure_logging(settings: LogSettings) -> None:
    """Write all log records to standard error in the format of the settings."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_ObjectFilter())
    json_lines = settings.format is LogFormat.JSON
    handler.setFormatter(JsonFormatter() if json_lines else LineFormatter(_TEXT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


_OK, _NOT_FOUND, _UNAVAILABLE = 200, 404, 503


class HealthServer:
    """Serves ``/healthz``, ``/readyz`` and ``/metrics``."""

    def __init__(
        self,
        settings: HealthSettings,
        *,
        liveness: Liveness,
        metrics: OperatorMetrics,
        checks: tuple[Callable[[], str], ...] = (),
    ) -> None:
        self._liveness = liveness
        self._metrics = metrics
        self._checks = (liveness.unhealthy_reason, *checks)
        self._server = _Server((settings.host, settings.port), _make_handler(self.respond))
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="health", daemon=True
        )

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Start to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()

    def respond(self, path: str) -> tuple[int, str]:
        """Return the status and the text of a response.

        ``/healthz`` fails when a heartbeat is too old; ``/readyz`` also before the informer cache
        has synced. A process that waits for the Lease is ready.
        """
        match path.partition("?")[0]:
            case "/healthz":
                return self._health()
            case "/readyz":
                status, text = self._health()
                if status == _OK and self._liveness.stage in (Stage.SYNCING, Stage.STOPPING):
                    return _UNAVAILABLE, f"{self._liveness.stage}\n"
                return status, text
            case "/metrics":
                return _OK, self._metrics.text()
            case _:
                return _NOT_FOUND, "not found; the paths are /healthz, /readyz and /metrics\n"

    def _health(self) -> tuple[int, str]:
        """Return whether every heartbeat is recent."""
        reasons = [text for check in self._checks if (text := check())]
        if reasons:
            return _UNAVAILABLE, "; ".join(reasons) + "\n"
        return _OK, f"{self._liveness.stage}\n"


class _Server(ThreadingHTTPServer):
    """A server whose threads do not keep the process alive."""

    daemon_threads = True


def _make_handler(respond: Callable[[str], tuple[int, str]]) -> type[BaseHTTPRequestHandler]:
    """Make the handler class that the standard library's server takes."""

    class Handler(BaseHTTPRequestHandler):
        """Responds to GET."""

        def do_GET(self) -> None:
            """Respond."""
            status, text = respond(self.path)
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        @override
        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: probes are sent every few seconds."""

    return Handler
