"""Health, readiness and metrics over HTTP, from a thread of its own.

A server in the event loop could not tell that the loop hangs.
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
    """Answers ``/healthz``, ``/readyz`` and ``/metrics``."""

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
        self._server = _Server((settings.host, settings.port), _handler(self.answer))
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="health", daemon=True
        )

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str) -> tuple[int, str]:
        """Answer a request.

        Parameters
        ----------
        path
            Path of the request.

        Returns
        -------
        tuple[int, str]
            Status and text. ``/healthz`` fails when a sign of life is too old; ``/readyz`` also
            while the cluster is not known yet; a process that waits for the Lease is ready.
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
                return _NOT_FOUND, "ask for /healthz, /readyz or /metrics\n"

    def _health(self) -> tuple[int, str]:
        """Answer whether every sign of life is fresh."""
        complaints = [text for check in self._checks if (text := check())]
        if complaints:
            return _UNAVAILABLE, "; ".join(complaints) + "\n"
        return _OK, f"{self._liveness.stage}\n"


class _Server(ThreadingHTTPServer):
    """A server whose threads end with the process."""

    daemon_threads = True


def _handler(answer: Callable[[str], tuple[int, str]]) -> type[BaseHTTPRequestHandler]:
    """Make the class that the standard library's server wants."""

    class Handler(BaseHTTPRequestHandler):
        """Answers GET."""

        def do_GET(self) -> None:
            """Answer."""
            status, text = answer(self.path)
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        @override
        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: probes come every few seconds."""

    return Handler
