"""Spans by OpenTelemetry's SDK, sent by a thread of their own as OTLP over HTTP.

Ending a span only puts it into a bounded queue. A collector that is away costs one warning
and a request now and then: meanwhile spans are dropped.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import version
from typing import Final

import requests
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from typing_extensions import override

from cloister_clients.clock import monotonic
from cloister_clients.tracing.settings import TracingSettings
from cloister_clients.tracing.spans import NO_SPAN, Attributes, SpanKind, TraceSpan, Value
from cloister_crds.backoff import Backoff

__all__ = ["OpenTelemetryTracer", "PatientExporter"]

logger = logging.getLogger(__name__)

QUEUE: Final = 8192
"""Spans that wait to be sent at most; a span is about a kilobyte."""
BATCH: Final = 512
"""Spans of one request at most."""
DELAY_SECONDS: Final = 2.0
"""Seconds after which fewer are sent too."""
REQUEST_SECONDS: Final = 5.0
"""Seconds for one request, with the library's own attempts."""
BACKOFF: Final = Backoff(first=5.0, longest=300.0)
"""How long a collector that did not accept spans is not queried."""
LIBRARY: Final = "opentelemetry.exporter"
"""Loggers of the library that sends; it writes several lines for every failure."""

_KINDS: Final = {
    SpanKind.SERVER: trace.SpanKind.SERVER,
    SpanKind.CLIENT: trace.SpanKind.CLIENT,
    SpanKind.INTERNAL: trace.SpanKind.INTERNAL,
}
_PROPAGATOR: Final = TraceContextTextMapPropagator()


class _LastLine(logging.Handler):
    """Keeps the last line of a logger."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.text = record.getMessage()


class PatientExporter(SpanExporter):
    """Sends spans, and pauses for a while when the collector does not accept them."""

    def __init__(self, inner: SpanExporter, endpoint: str) -> None:
        self._inner = inner
        self._endpoint = endpoint
        self._failures = 0
        self._dropped = 0
        self._next = 0.0
        self._closing = False
        library = logging.getLogger(LIBRARY)
        self._last = _LastLine()
        library.propagate = False
        library.handlers[:] = [self._last]

    @override
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans, or drop them during a pause."""
        if monotonic() < self._next or (self._closing and self._failures):
            self._dropped += len(spans)
            return SpanExportResult.FAILURE
        self._last.text = ""
        result = self._inner.export(spans)
        if result is SpanExportResult.SUCCESS:
            self._recovered()
        else:
            self._failed(len(spans))
        return result

    def close_soon(self) -> None:
        """Drop everything after a failure from now on, rather than wait for the collector."""
        self._closing = True

    @override
    def shutdown(self) -> None:
        """Close the connection."""
        self._inner.shutdown()

    @override
    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return True: nothing is kept here."""
        return True

    def _failed(self, spans: int) -> None:
        self._failures += 1
        self._dropped += spans
        self._next = monotonic() + BACKOFF.delay(self._failures)
        level = logging.WARNING if self._failures == 1 else logging.DEBUG
        logger.log(
            level,
            "traces cannot be sent to %s: %s; they are dropped until it takes them again (see "
            "tracing.endpoint), which is tried after %.0f s, then less often",
            self._endpoint,
            self._last.text or "no response",
            BACKOFF.delay(self._failures),
        )

    def _recovered(self) -> None:
        if self._failures:
            logger.info(
                "traces are sent to %s again; %d spans were dropped", self._endpoint, self._dropped
            )
        self._failures = self._dropped = 0


class _RecordedSpan:
    """A span of the SDK."""

    __slots__ = ("_span",)

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def rename(self, name: str) -> None:
        """Change its name."""
        self._span.update_name(name)

    def set(self, name: str, value: Value) -> None:
        """Set an attribute."""
        self._span.set_attribute(name, value)

    def fail(self, why: str) -> None:
        """Mark it as failed."""
        self._span.set_attribute("error.type", why)
        self._span.set_status(trace.Status(trace.StatusCode.ERROR, why))


class OpenTelemetryTracer:
    """Makes spans and sends them.

    Parameters
    ----------
    component
        The program: ``operator`` or ``api``.

    Raises
    ------
    SettingsError
        When a file that the settings name cannot be used.
    """

    def __init__(self, settings: TracingSettings, component: str) -> None:
        settings.check_prerequisites()
        session = requests.Session()
        # No proxy and no netrc of the environment.
        session.trust_env = False
        self._exporter = PatientExporter(
            OTLPSpanExporter(
                endpoint=settings.endpoint,
                certificate_file=str(settings.ca_file) if settings.ca_file else None,
                headers=settings.headers(),
                timeout=REQUEST_SECONDS,
                compression=Compression.Gzip,
                session=session,
            ),
            settings.endpoint,
        )
        self._processor = BatchSpanProcessor(
            self._exporter,
            max_queue_size=QUEUE,
            schedule_delay_millis=DELAY_SECONDS * 1000,
            max_export_batch_size=BATCH,
            export_timeout_millis=REQUEST_SECONDS * 1000,
        )
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(settings.sample_ratio)),
            resource=Resource(
                {"service.name": f"cloister-{component}", "service.version": version("cloister")}
            ),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(self._processor)
        self._tracer = self._provider.get_tracer("cloister")

    def close(self) -> None:
        """Send what is left, within the time of one request, and end the thread."""
        self._exporter.close_soon()
        self._provider.shutdown()

    def span(
        self,
        name: str,
        kind: SpanKind,
        *,
        parent: str,
        link: str,
        inner: bool,
        attributes: Attributes,
    ) -> AbstractContextManager[TraceSpan]:
        """Begin a span."""
        if inner and not _is_recorded():
            return NO_SPAN
        return self._recorded(name, kind, parent, link, attributes)

    @contextmanager
    def _recorded(
        self, name: str, kind: SpanKind, parent: str, link: str, attributes: Attributes
    ) -> Iterator[TraceSpan]:
        linked = _remote(link).get_span_context()
        with self._tracer.start_as_current_span(
            name,
            context=trace.set_span_in_context(_remote(parent)) if parent else None,
            kind=_KINDS[kind],
            attributes=attributes,
            links=[trace.Link(linked)] if linked.is_valid else [],
            # The texts of errors may quote what users sent.
            record_exception=False,
            set_status_on_exception=False,
        ) as begun:
            span = _RecordedSpan(begun)
            try:
                yield span
            except BaseException as error:
                span.fail(type(error).__name__)
                raise

    def traceparent(self) -> str:
        """Return the current span for another process; empty if none is recorded."""
        if not _is_recorded():
            return ""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        return carrier.get("traceparent", "")

    def trace_id(self) -> str:
        """Return the identifier of the current trace; empty if there is none."""
        found = trace.get_current_span().get_span_context()
        return trace.format_trace_id(found.trace_id) if found.is_valid else ""


def _is_recorded() -> bool:
    """Return whether the current trace is recorded; its current span may have ended by now.

    So a lookup that a reconcile began is of its trace, though it may end after it.
    """
    return trace.get_current_span().get_span_context().trace_flags.sampled


def _remote(traceparent: str) -> trace.Span:
    """Read a span of another process; an invalid one = `trace.INVALID_SPAN`."""
    if not traceparent:
        return trace.INVALID_SPAN
    context = _PROPAGATOR.extract({"traceparent": traceparent}, context=Context())
    return trace.get_current_span(context)
