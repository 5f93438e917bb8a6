"""The access log, the request id of each log line, and the trace span of a request."""

import logging
import re
import sys
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Scope
from typing_extensions import override

from cloister_api.ledger.availability import is_news
from cloister_clients.telemetry import JsonFormatter, LineFormatter, LogFormat
from cloister_clients.tracing.spans import NO_SPAN, SpanKind, TraceSpan, is_on, span, trace_id

logger = logging.getLogger(__name__)

CURRENT_REQUEST: ContextVar[str] = ContextVar("request_id", default="-")
"""Identifier of the request in progress; ``-`` = there is none."""
_FORMAT = "%(asctime)s %(levelname)s %(name)s [%(request_id)s] %(message)s"
UUID = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
QUIET = frozenset({"/healthz", "/readyz", "/api/shim/validate-key"})
"""Paths that are requested all the time: their successes are logged only at DEBUG."""
REFUSED = 400


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
    handler.addFilter(is_news)
    json_lines = form is LogFormat.JSON
    handler.setFormatter(JsonFormatter() if json_lines else LineFormatter(_FORMAT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for library in ("httpx", "stripe"):
        logging.getLogger(library).setLevel(logging.WARNING)


def route_of(scope: Scope) -> str:
    """Return the template of the path of a completed request; empty if no route has it.

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
    status
        HTTP status; 0 if the client left before there was one.
    """
    route = route_of(scope)
    quiet = status < REFUSED and route in QUIET
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


FAILED = 500
"""The first status that is the facade's own failure."""


def request_span(
    scope: Scope, headers: Headers, request_id: str, *, follow_callers: bool
) -> AbstractContextManager[TraceSpan]:
    """Begin the span of a request; those that are sent all the time have none."""
    if not is_on() or scope["path"] in QUIET:
        return NO_SPAN
    given = headers.get("traceparent", "")
    return span(
        scope["method"],
        SpanKind.SERVER,
        parent=given if follow_callers else "",
        link="" if follow_callers else given,
        attributes={"http.request.method": scope["method"], "cloister.request_id": request_id},
    )


def describe_response(current: TraceSpan, scope: Scope, status: int) -> None:
    """Describe what a request was and how it ended.

    Parameters
    ----------
    status
        HTTP status; 0 if the client left before there was one.
    """
    if current is NO_SPAN:
        return
    route = route_of(scope)
    current.rename(f"{scope['method']} {route or '(unknown path)'}")
    current.set("http.route", route)
    current.set("http.response.status_code", status)
    principal: Any = scope["state"].get("principal")
    if principal:
        current.set("cloister.organization", principal.slug)
    if status >= FAILED:
        current.fail(str(status))
