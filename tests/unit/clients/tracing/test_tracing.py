"""Spans on their way to a collector on a socket, and what tracing costs while it is off."""

import asyncio
import json
import logging
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult

from cloister_clients.kube.transport import resource_of
from cloister_clients.settings import SettingsError
from cloister_clients.telemetry import JsonFormatter, LineFormatter
from cloister_clients.tracing import open_telemetry
from cloister_clients.tracing.open_telemetry import PatientExporter
from cloister_clients.tracing.settings import TracingSettings
from cloister_clients.tracing.spans import (
    NO_SPAN,
    SpanKind,
    is_on,
    span,
    trace_id,
    traced,
    traceparent,
)
from cloister_crds.backoff import Backoff
from tests.support.stand_ins.otlp_collector import Collector, collector

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
OF_ANOTHER = f"00-{TRACE}-{PARENT}-01"
REFUSED = 400
DEADLINE = 30.0
"""Seconds in which a program ends, on a machine that is busy with other things."""


@pytest.fixture
def receiver() -> Iterator[Collector]:
    with collector() as found:
        yield found


def settings(receiver: Collector, **more: object) -> TracingSettings:
    return TracingSettings.model_validate({"endpoint": receiver.endpoint, **more})


def test_nothing_is_recorded_while_tracing_is_off() -> None:
    with traced(None, "api"), span("work", attributes={"a": "b"}) as current:
        assert current is NO_SPAN
        current.set("c", 1)
        current.fail("no")
        assert (is_on(), traceparent(), trace_id()) == (False, "", "")


def test_spans_reach_the_collector_when_the_program_ends(receiver: Collector) -> None:
    with traced(settings(receiver), "api"):
        with span("request", SpanKind.SERVER) as request:
            request.rename("GET /x")
            request.set("status", 200)
            outside = traceparent()
            assert outside.startswith(f"00-{trace_id()}-")
            with span("inner", inner=True):
                pass
        with pytest.raises(ZeroDivisionError), span("broken"):
            raise ZeroDivisionError("text that is not sent")
    inner, request_span, broken = receiver.spans
    assert (request_span.name, request_span.service) == ("GET /x", "cloister-api")
    assert request_span.attributes == {"status": 200}
    assert inner.parent_id == request_span.span_id == outside.split("-")[2]
    assert broken.failed
    assert broken.attributes == {"error.type": "ZeroDivisionError"}
    assert not is_on()


def test_a_span_continues_or_mentions_that_of_another_process(receiver: Collector) -> None:
    with traced(settings(receiver, sampleRatio=0), "operator"):
        with span("continued", parent=OF_ANOTHER):
            assert trace_id() == TRACE
        with span("mentioned", link=OF_ANOTHER):
            assert traceparent() == "", "nothing is recorded, so that nobody goes on with it"
            assert span("inner", inner=True) is NO_SPAN
    (continued,) = receiver.spans
    assert (continued.trace_id, continued.parent_id) == (TRACE, PARENT)
    with traced(settings(receiver), "operator"):
        with span("mentioned", link=OF_ANOTHER):
            pass
        for invalid in ("nonsense", f"00-{'0' * 32}-{PARENT}-01"):
            with span("alone", parent=invalid, link=invalid):
                pass
    mentioned, *alone = receiver.spans[1:]
    assert (mentioned.links, mentioned.parent_id) == ((TRACE,), "")
    assert all(each.parent_id == "" and not each.links for each in alone)
    assert len({each.trace_id for each in alone}) == len(alone) == 2


def test_what_belongs_to_no_other_span_is_not_recorded_alone(receiver: Collector) -> None:
    with traced(settings(receiver), "operator"):
        assert span("inner", inner=True) is NO_SPAN


async def test_work_that_a_span_began_may_end_after_it(receiver: Collector) -> None:
    ended = asyncio.Event()

    async def work() -> None:
        await ended.wait()
        with span("later", inner=True):
            pass

    with traced(settings(receiver), "operator"):
        with span("first"):
            task = asyncio.create_task(work())
        ended.set()
        await task
    first, later = receiver.spans
    assert (later.name, later.parent_id) == ("later", first.span_id)


def test_headers_are_read_from_a_file(receiver: Collector, tmp_path: Path) -> None:
    path = tmp_path / "headers"
    path.write_text("Authorization: Bearer made-up\n\nX-Tenant:  a b \n")
    with traced(settings(receiver, headersFile=str(path)), "api"), span("x"):
        pass
    headers = receiver.requests[0].headers
    assert (headers["authorization"], headers["x-tenant"]) == ("Bearer made-up", "a b")


@pytest.mark.parametrize("text", ["made-up-token", "Bad Name: x", "Empty:", "Bell: \x07"])
def test_a_line_that_is_no_header_is_refused_and_not_quoted(tmp_path: Path, text: str) -> None:
    path = tmp_path / "headers"
    path.write_text(f"A: b\n{text}\n")
    found = TracingSettings(endpoint="http://collector/v1/traces", headers_file=path)
    with pytest.raises(
        SettingsError, match=r"tracing\.headersFile: .*: line 2 is not a header"
    ) as error:
        found.check_prerequisites()
    assert text not in str(error.value)


def test_files_that_are_missing_are_named(tmp_path: Path) -> None:
    for name in ("caFile", "headersFile"):
        found = TracingSettings.model_validate(
            {"endpoint": "http://collector/v1/traces", name: str(tmp_path / "missing")}
        )
        with pytest.raises(SettingsError, match=rf"tracing\.{name}: .*No such file"):
            found.check_prerequisites()


@pytest.mark.parametrize(
    "endpoint",
    ["collector:4318", "http://collector", "http://me:pw@collector/v1/traces", "ftp://c/v1/traces"],
)
def test_an_endpoint_is_an_address_with_a_path_and_without_credentials(endpoint: str) -> None:
    with pytest.raises(ValueError, match="endpoint"):
        TracingSettings(endpoint=endpoint)


class Sender:
    """An exporter, and a provider that sends each span at once by it."""

    def __init__(self, endpoint: str, *, timeout: float = DEADLINE) -> None:
        self.exporter = PatientExporter(OTLPSpanExporter(endpoint, timeout=timeout), endpoint)
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def send(self) -> None:
        """Record and send one span."""
        with self.provider.get_tracer("test").start_as_current_span("x"):
            pass


@pytest.fixture
def library_loggers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the library's loggers back, which an exporter takes for itself."""
    library = logging.getLogger(open_telemetry.LIBRARY)
    before = library.handlers[:], library.propagate
    yield
    library.handlers[:], library.propagate = before


def test_a_collector_that_refuses_is_left_alone_and_reported_once(
    receiver: Collector,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    library_loggers: None,
) -> None:
    monkeypatch.setattr(open_telemetry, "BACKOFF", Backoff(first=3600.0, longest=3600.0))
    receiver.status = REFUSED
    sender = Sender(receiver.endpoint)
    with caplog.at_level(logging.INFO):
        for _ in range(50):
            sender.send()
    assert len(receiver.requests) == 1
    (line,) = caplog.messages
    assert f"traces cannot be sent to {receiver.endpoint}" in line
    assert "tracing.endpoint" in line


def test_a_collector_that_is_away_costs_one_attempt(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, library_loggers: None
) -> None:
    monkeypatch.setattr(open_telemetry, "BACKOFF", Backoff(first=3600.0, longest=3600.0))
    attempts: list[object] = []
    export = OTLPSpanExporter.export

    def counted(self: OTLPSpanExporter, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        attempts.append(spans)
        return export(self, spans)

    monkeypatch.setattr(OTLPSpanExporter, "export", counted)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        sender = Sender(f"http://127.0.0.1:{closed.getsockname()[1]}/v1/traces", timeout=0.2)
        sender.send()
        caplog.clear()
        with caplog.at_level(logging.INFO):
            for _ in range(1000):
                sender.send()
    assert len(attempts) == 1
    assert caplog.messages == []


def test_a_program_ends_beside_a_collector_that_does_not_respond(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, library_loggers: None
) -> None:
    monkeypatch.setattr(open_telemetry, "REQUEST_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces"
        began = time.monotonic()
        with traced(TracingSettings(endpoint=endpoint), "api"):
            for _ in range(3 * open_telemetry.BATCH):
                with span("x"):
                    pass
            recorded = time.monotonic() - began
        assert recorded < time.monotonic() - began < DEADLINE
    assert len([each for each in caplog.messages if "traces cannot be sent" in each]) == 1


def test_a_collector_that_returns_is_reported(
    receiver: Collector,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    library_loggers: None,
) -> None:
    monkeypatch.setattr(open_telemetry, "BACKOFF", Backoff(first=0.0, longest=0.0))
    sender = Sender(receiver.endpoint)
    receiver.status = REFUSED
    sender.send()
    sender.send()
    receiver.status = 200
    caplog.clear()
    with caplog.at_level(logging.INFO):
        sender.send()
        sender.send()
    again = f"traces are sent to {receiver.endpoint} again; 2 spans were dropped"
    assert caplog.messages == [again]


def test_a_line_of_the_log_names_its_trace() -> None:
    record = logging.LogRecord("x", logging.INFO, "", 0, "said", (), None)
    plain = LineFormatter("%(message)s")
    assert "trace_id" not in json.loads(JsonFormatter().format(record))
    assert plain.format(record) == "said"
    record.trace_id = TRACE
    assert json.loads(JsonFormatter().format(record))["trace_id"] == TRACE
    assert plain.format(record) == f"said trace_id={TRACE}"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/namespaces/org-acme/pods", "pods"),
        ("/api/v1/namespaces/org-acme/pods/web", "pods"),
        (
            "/apis/cloister.dev/v1alpha1/namespaces/org-acme/containers/web/status",
            "containers/status",
        ),
        ("/apis/cloister.dev/v1alpha1/hosts/h", "hosts"),
        ("/api/v1/namespaces/org-acme", "namespaces"),
        ("/version", "version"),
    ],
)
def test_a_request_to_the_api_server_is_named_by_its_resource(path: str, expected: str) -> None:
    assert resource_of(path) == expected
