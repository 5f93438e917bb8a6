"""The access log: one line for each request, and the request id in every line that belongs to it.

The line has the template of the path and identifiers in it, never the path itself: it may hold the
value of an API key, or whatever a client took for a path.
"""

import logging
import re
import sys
from contextvars import ContextVar
from typing import Any

from starlette.types import Scope
from typing_extensions import override

from cloister_clients.telemetry.json_lines import JsonFormatter, LogFormat
from cloister_clients.telemetry.log_lines import LineFormatter
from cloister_clients.tracing.spans import trace_id

__all__ = ["CURRENT_REQUEST", "configure_logging", "log_request", "route_of"]

logger = logging.getLogger(__name__)

CURRENT_REQUEST: ContextVar[str] = ContextVar("request_id", default="-")
"""Identifier of the request in progress; ``-`` = there is none."""
_FORMAT = "%(asctime)s %(levelname)s %(name)s [%(request_id)s] %(message)s"
UUID = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
QUIET = frozenset({"/healthz", "/readyz", "/api/shim/validate-key"})
"""Paths that are requested all the time: their successes are logged at DEBUG alone."""
FAILED = 400


class _RequestIdFilter(logging.Filter):
    """Adds the request id and the trace to every record."""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Add them."""
        record.request_id = CURRENT_REQUEST.get()
        record.trace_id = trace_id()
        return True


def configure_logging(level: str, form: LogFormat = LogFormat.TEXT) -> None:
    """Write all log records to standard error, one line each, with the id of their request."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_RequestIdFilter())
    json_lines = form is LogFormat.JSON
    handler.setFormatter(JsonFormatter() if json_lines else LineFormatter(_FORMAT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for library in ("httpx", "stripe"):
        logging.getLogger(library).setLevel(logging.WARNING)


def route_of(scope: Scope) -> str:
    """Return the template of the path of a completed request; empty = no route has it.

    A request that the guard refuses is not routed: a path without parameters is known all the same.
    """
    if scope["path"] in QUIET:
        return str(scope["path"])
    route = scope.get("route")
    return str(getattr(route, "path", "") or scope["state"].get("literal_path", ""))


def log_request(scope: Scope, status: int, seconds: float) -> None:
    """Write the line of a completed request.

    Parameters
    ----------
    scope
        The request.
    status
        HTTP status; 0 = the client left before there was one.
    seconds
        How long it took.
    """
    route = route_of(scope)
    quiet = status < FAILED and route in QUIET
    level = logging.DEBUG if quiet else logging.INFO
    if not logger.isEnabledFor(level):
        return
    principal: Any = scope["state"].get("principal")
    who = "no key"
    if principal:
        by = (
            f"session {principal.session_id}" if principal.session_id else f"key {principal.key_id}"
        )
        who = f"{principal.slug} {principal.user} {by}"
    named = [value for value in scope.get("path_params", {}).values() if UUID.match(str(value))]
    target = f" {named[0]}" if named else ""
    milliseconds = seconds * 1000
    logger.log(
        level,
        "%s %s%s %d in %.1f ms, %s",
        scope["method"],
        route or "(unknown path)",
        target,
        status,
        milliseconds,
        who,
        extra={"object": named[0] if named else ""},
    )
