"""Spans of requests to the facade, as they reach a collector on a socket."""

import pytest

from cloister_api.settings import ApiTracingSettings
from cloister_clients.tracing.spans import traced
from tests.support.programs.routes_only import bare_app, bare_client
from tests.support.stand_ins.otlp_collector import ReceivedSpan, collector

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
VALUE = "tk_made-up-value"
"""The value of an API key."""


async def spans(
    method: str,
    path: str,
    headers: dict[str, str] | None = None,
    *,
    key: str | None = "Bearer good",
    follow: bool = False,
) -> list[ReceivedSpan]:
    """Return the spans of one request."""
    with collector() as found:
        settings = ApiTracingSettings(endpoint=found.endpoint, follow_callers=follow)
        with traced(settings, "api"):
            app = bare_app(tracing=settings.model_dump(by_alias=True))
            async with bare_client(app, key=key) as client:
                await client.request(method, path, headers=headers)
        return found.spans


async def test_a_span_says_what_was_requested_and_how_it_ended() -> None:
    (span,) = await spans("GET", "/api/deployments", {"x-request-id": "mine"})
    assert (span.name, span.service) == ("GET /api/deployments", "cloister-api")
    assert span.attributes == {
        "http.request.method": "GET",
        "http.route": "/api/deployments",
        "http.response.status_code": 404,
        "cloister.request_id": "mine",
        "cloister.organization": "acme",
    }
    assert not span.failed


async def test_a_refused_request_has_a_span() -> None:
    (span,) = await spans("GET", "/api/deployments", key=None)
    assert span.attributes["http.response.status_code"] == 401
    assert "cloister.organization" not in span.attributes


async def test_no_span_has_the_value_of_a_key() -> None:
    (span,) = await spans("DELETE", f"/api/keys/{VALUE}?and={VALUE}", {"x-mine": VALUE})
    assert VALUE not in repr(span)


@pytest.mark.parametrize("path", ["/healthz", "/api/shim/validate-key"])
async def test_what_is_requested_all_the_time_has_none(path: str) -> None:
    assert await spans("POST", path) == []


@pytest.mark.parametrize("follow", [True, False], ids=["followed", "mentioned"])
async def test_the_trace_of_a_caller(*, follow: bool) -> None:
    given = {"traceparent": f"00-{TRACE}-{PARENT}-01", "baggage": "user=eve", "tracestate": "a=b"}
    (span,) = await spans("GET", "/api/deployments", given, follow=follow)
    assert (span.trace_id == TRACE) is follow
    assert span.parent_id == (PARENT if follow else "")
    assert span.links == (() if follow else (TRACE,))


async def test_a_caller_decides_what_is_recorded_only_where_it_is_followed() -> None:
    given = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
    assert await spans("GET", "/api/deployments", given, follow=True) == []
    assert len(await spans("GET", "/api/deployments", given)) == 1
