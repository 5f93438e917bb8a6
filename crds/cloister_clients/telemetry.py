"""Log lines for people and programs, and the metrics that both programs have."""

import json
import logging
import re
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import version
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector
from typing_extensions import override

__all__ = ["JsonFormatter", "LineFormatter", "LogFormat", "escaped", "register_process_metrics"]

NO_REQUEST: Final = "-"
"""Request id of a line that belongs to no request."""


class LogFormat(StrEnum):
    """Format of log lines."""

    TEXT = "text"
    """For people."""
    JSON = "json"
    """One JSON object a line."""


class JsonFormatter(logging.Formatter):
    """One JSON object for each record."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        concerned = getattr(record, "object", None)
        if concerned:
            line["object"] = concerned
        request = getattr(record, "request_id", NO_REQUEST)
        if request != NO_REQUEST:
            line["request_id"] = request
        trace = getattr(record, "trace_id", "")
        if trace:
            line["trace_id"] = trace
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        # In ASCII, since some readers take further characters for the end of a line.
        return json.dumps(line)


_ACTING = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters (C0, C1), breaks of lines and paragraphs, and what reverses text."""


def escaped(text: str) -> str:
    r"""Write characters that act on a log or a terminal as Python does: ``\n``, ``\x1b``."""
    return _ACTING.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


class LineFormatter(logging.Formatter):
    """Writes a record as one line; the lines of an exception are indented below it."""

    @override
    def formatMessage(self, record: logging.LogRecord) -> str:
        """Write the line, with the trace that it belongs to at its end."""
        trace = getattr(record, "trace_id", "")
        end = f" trace_id={trace}" if trace else ""
        return escaped(super().formatMessage(record) + end)

    @override
    def formatException(self, ei: object) -> str:
        """Write an exception."""
        return _indented(super().formatException(ei))  # type: ignore[arg-type]  # as it is passed

    @override
    def formatStack(self, stack_info: str) -> str:
        """Write where a record was made."""
        return _indented(super().formatStack(stack_info))


def _indented(text: str) -> str:
    """Indent lines, so that none looks like a record."""
    return "\n".join(f"    {escaped(line)}" for line in text.split("\n"))


def register_process_metrics(registry: CollectorRegistry, component: str) -> None:
    """Register the build and the process in a registry.

    Parameters
    ----------
    component
        The program: ``operator`` or ``api``.
    """
    build = Gauge(
        "cloister_build_info",
        "1, with the version that runs.",
        ("component", "version"),
        registry=registry,
    )
    build.labels(component, version("cloister")).set(1)
    ProcessCollector(registry=registry)
