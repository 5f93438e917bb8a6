"""Log lines for people: one record is one line, whatever its text was made of.

Messages quote what registries, repositories and clients sent. A line break in it would begin a line
that looks like a record of its own, an escape sequence would act on the reader's terminal.
"""

import logging
import re

from typing_extensions import override

__all__ = ["LineFormatter", "escaped"]

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
