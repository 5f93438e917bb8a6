"""A collector of traces on the loopback: it takes OTLP over HTTP, and keeps the spans.

A stand-in for the OpenTelemetry Collector, with OpenTelemetry's own messages.
"""

import contextlib
import gzip
from collections.abc import Iterator
from dataclasses import dataclass, field

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from tests.support.stand_ins.http_server import HttpServer, Reply, Request, serve

__all__ = ["Collector", "ReceivedSpan", "collector"]


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """A span as it was sent."""

    service: str
    """The program."""
    name: str
    """Its name."""
    trace_id: str
    """Trace, in hexadecimal."""
    span_id: str
    """Itself, in hexadecimal."""
    parent_id: str
    """Its parent, in hexadecimal; empty = it begins the trace."""
    links: tuple[str, ...]
    """Traces that it mentions, in hexadecimal."""
    attributes: dict[str, str | int]
    """Its attributes."""
    failed: bool
    """Whether it is marked as failed."""


@dataclass
class Collector:
    """The running stand-in."""

    status: int = 200
    """Status that it responds with; anything but 200 refuses the spans."""
    requests: list[Request] = field(default_factory=list)
    """Requests in order, also refused ones."""
    spans: list[ReceivedSpan] = field(default_factory=list)
    """The spans of those that were taken."""
    server: HttpServer | None = None
    """Its server."""

    @property
    def endpoint(self) -> str:
        """Address for the setting ``tracing.endpoint``."""
        assert self.server is not None
        return f"{self.server.base}/v1/traces"

    def named(self, name: str, service: str = "") -> list[ReceivedSpan]:
        """Return the spans of a name, of one program or all."""
        return [each for each in self.spans if each.name == name and service in each.service]

    def answer(self, request: Request) -> Reply:
        """Take or refuse a request."""
        self.requests.append(request)
        if self.status != 200:
            return Reply(self.status)
        assert request.path == "/v1/traces"
        assert request.headers["content-type"] == "application/x-protobuf"
        packed = request.headers.get("content-encoding") == "gzip"
        self.spans += received(gzip.decompress(request.body) if packed else request.body)
        return Reply(body=ExportTraceServiceResponse().SerializeToString())


@contextlib.contextmanager
def collector() -> Iterator[Collector]:
    """Run the stand-in until the block ends."""
    found = Collector()
    with serve(found.answer) as server:
        found.server = server
        yield found


def received(body: bytes) -> Iterator[ReceivedSpan]:
    """Read the spans of a request."""
    for group in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = str(attributes_of(group.resource.attributes)["service.name"])
        for scope in group.scope_spans:
            for span in scope.spans:
                yield read(service, span)


def read(service: str, span: SpanMessage) -> ReceivedSpan:
    """Read a span."""
    return ReceivedSpan(
        service=service,
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        links=tuple(each.trace_id.hex() for each in span.links),
        attributes=attributes_of(span.attributes),
        failed=span.status.code == Status.STATUS_CODE_ERROR,
    )


def attributes_of(pairs: list[KeyValue]) -> dict[str, str | int]:
    """Read attributes; those of Cloister are texts and whole numbers."""
    return {
        each.key: each.value.int_value
        if each.value.HasField("int_value")
        else each.value.string_value
        for each in pairs
    }
