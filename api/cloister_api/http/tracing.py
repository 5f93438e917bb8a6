"""The span of a request to the facade.

A caller's ``traceparent`` is mentioned, as a link, and followed only where the administrator says
so: otherwise any caller could write into traces of others, and decide how much is recorded.
"""

from contextlib import AbstractContextManager
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Scope

from cloister_api.http.access_log import QUIET, route_of
from cloister_clients.tracing.spans import NO_SPAN, SpanKind, TraceSpan, is_on, span

__all__ = ["describe_response", "request_span"]

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
    current
        Its span.
    scope
        The request.
    status
        HTTP status; 0 = the client left before there was one.
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
