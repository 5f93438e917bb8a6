"""Liveness, readiness and metrics over HTTP, from a thread of its own.

A server in the event loop could not report that the loop hangs.
"""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import override

from cloister_operator.settings import HealthSettings
from cloister_operator.telemetry.liveness import Liveness, Stage
from cloister_operator.telemetry.metrics import OperatorMetrics

__all__ = ["HealthServer"]

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
