"""Log format: text for people, or one JSON object a line. Secret values are never logged."""

import logging
import sys
from contextvars import ContextVar

from typing_extensions import override

from cloister_clients.telemetry.json_lines import JsonFormatter, LogFormat
from cloister_clients.telemetry.log_lines import LineFormatter
from cloister_clients.tracing.spans import trace_id
from cloister_operator.settings import LogSettings

__all__ = ["CURRENT_OBJECT", "configure_logging"]

CURRENT_OBJECT: ContextVar[str] = ContextVar("object", default="")
"""The object that is reconciled; empty = none is."""
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_QUIET = ("kopf.objects", "httpx", "httpcore", "asyncio", "aiohttp")
"""Loggers of libraries that log each request; only their warnings are written."""


class _ObjectFilter(logging.Filter):
    """Adds the object that is reconciled, and the trace, to every record."""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Add them."""
        record.object = CURRENT_OBJECT.get()
        record.trace_id = trace_id()
        return True


def configure_logging(settings: LogSettings) -> None:
    """Write all log records to standard error in the format of the settings."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_ObjectFilter())
    json_lines = settings.format is LogFormat.JSON
    handler.setFormatter(JsonFormatter() if json_lines else LineFormatter(_TEXT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
