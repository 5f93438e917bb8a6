"""Log lines for programs: one JSON object each, with the same keys in both of ours.

Always ``time``, ``level``, ``logger`` and ``message``; where there is one ``object`` (kind,
namespace and name, or an identifier), ``request_id``, ``trace_id`` and ``error`` (a traceback).
"""

import json
import logging
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from typing_extensions import override

__all__ = ["JsonFormatter", "LogFormat"]

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
