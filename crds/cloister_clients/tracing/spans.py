"""Spans of a program, their settings, start and end. While tracing is off, nothing happens."""

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from enum import StrEnum
from types import TracebackType
from typing import Protocol, Self

from cloister_clients.tracing.settings import TracingSettings

__all__ = [
    "NO_SPAN",
    "Attributes",
    "SpanKind",
    "TraceSpan",
    "Tracer",
    "Value",
    "install",
    "is_on",
    "span",
    "trace_id",
    "traced",
    "traceparent",
]

Value = str | float | bool
"""Value of an attribute; whole numbers too."""
Attributes = Mapping[str, Value]
"""Attributes of a span, by the names of OpenTelemetry's semantic conventions where they have one.
"""


class SpanKind(StrEnum):
    """What a span is about (OpenTelemetry, "SpanKind")."""

    SERVER = "server"
    """A request that was received."""
    CLIENT = "client"
    """A request that was sent."""
    INTERNAL = "internal"
    """Work of the program."""


class TraceSpan(Protocol):
    """A span that has begun."""

    def rename(self, name: str) -> None:
        """Change its name, which was not known when it began."""

    def set(self, name: str, value: Value) -> None:
        """Set an attribute."""

    def fail(self, why: str) -> None:
        """Mark it as failed, by a word such as the class of an error or a status."""


class Tracer(Protocol):
    """Makes spans; one is installed while tracing is on."""

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
        """Begin a span, as `span` does."""

    def traceparent(self) -> str:
        """Return what `traceparent` does."""

    def trace_id(self) -> str:
        """Return what `trace_id` does."""


class _NoSpan:
    """The span of everything while tracing is off."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let errors pass."""

    def rename(self, name: str) -> None:
        """Do nothing."""

    def set(self, name: str, value: Value) -> None:
        """Do nothing."""

    def fail(self, why: str) -> None:
        """Do nothing."""


NO_SPAN = _NoSpan()
"""What `span` returns while nothing is recorded."""


class _Process:
    """What the process has one of, as it has one root logger."""

    tracer: Tracer | None = None
    """Makes its spans; None if tracing is off."""


def install(tracer: Tracer | None) -> None:
    """Make a tracer the one of this process; None to switch tracing off."""
    _Process.tracer = tracer


def is_on() -> bool:
    """Return whether spans may be recorded: what they are made of is not computed otherwise."""
    return _Process.tracer is not None


def span(
    name: str,
    kind: SpanKind = SpanKind.INTERNAL,
    *,
    parent: str = "",
    link: str = "",
    inner: bool = False,
    attributes: Attributes | None = None,
) -> AbstractContextManager[TraceSpan]:
    """Begin a span, which is current until the block ends; an exception marks it as failed.

    Parameters
    ----------
    parent
        The span outside of this process that caused it (W3C Trace Context, traceparent). Empty
        means the current span; where there is none, or this is invalid, a new trace begins.
    link
        A span that is only mentioned, in the same form; empty or invalid means none.
    inner
        Whether it is only recorded within another span, so that it begins no trace.
    attributes
        Its first attributes.
    """
    tracer = _Process.tracer
    if tracer is None:
        return NO_SPAN
    return tracer.span(
        name, kind, parent=parent, link=link, inner=inner, attributes=attributes or {}
    )


def traceparent() -> str:
    """Return the current span as W3C Trace Context; empty if none is recorded."""
    tracer = _Process.tracer
    return tracer.traceparent() if tracer is not None else ""


def trace_id() -> str:
    """Return the identifier of the current trace, 32 hexadecimal digits; empty if there is none."""
    tracer = _Process.tracer
    return tracer.trace_id() if tracer is not None else ""


@contextlib.contextmanager
def traced(settings: TracingSettings | None, component: str) -> Iterator[None]:
    """Record spans while the block runs, and send what is left at its end.

    Parameters
    ----------
    settings
        Where they are sent; None if nothing is recorded, and nothing imported.
    component
        The program: ``operator`` or ``api``.

    Raises
    ------
    SettingsError
        When a file that the settings name cannot be used.
    """
    if settings is None:
        yield
        return
    from cloister_clients.tracing.open_telemetry import (  # noqa: PLC0415 - paid for only if used
        OpenTelemetryTracer,
    )

    tracer = OpenTelemetryTracer(settings, component)
    install(tracer)
    try:
        yield
    finally:
        install(None)
        tracer.close()
