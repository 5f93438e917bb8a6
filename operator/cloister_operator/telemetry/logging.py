"""Log format: text for people, or one JSON object a line. Secret values are never logged."""

import json
import logging
import sys
from datetime import UTC, datetime

from typing_extensions import override

from cloister_clients.log_lines import LineFormatter
from cloister_operator.settings import LogFormat, LogSettings

__all__ = ["JsonFormatter", "configure_logging"]

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_QUIET = ("kopf.objects", "httpx", "httpcore", "asyncio", "aiohttp")
"""Loggers of libraries that log each request; only their warnings are written."""


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
        key = getattr(record, "key", None)
        if key is not None:
            line["object"] = key
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        # In ASCII, since some readers take further characters for the end of a line.
        return json.dumps(line)


def configure_logging(settings: LogSettings) -> None:
    """Write all log records to standard error in the format of the settings."""
    handler = logging.StreamHandler(sys.stderr)
    json_lines = settings.format is LogFormat.JSON
    handler.setFormatter(JsonFormatter() if json_lines else LineFormatter(_TEXT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
