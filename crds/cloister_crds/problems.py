"""A problem of something that a user wrote: which field, what is wrong, what to do.

Shared by the configuration file and the organization-level checks; the facade returns them
as ``errors``, the operator shows them in a condition, the command line prints them.
"""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Problem", "Severity"]


class Severity(StrEnum):
    """How much a problem weighs."""

    ERROR = "error"
    """It keeps the file from being deployed."""
    WARNING = "warning"
    """It is reported, and nothing is refused."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, at one place."""

    field: str
    """Path of the field, such as ``containers[2].networks[0]``; empty for the whole document."""
    code: str
    """Stable CamelCase word for programs, such as ``UnknownField``."""
    message: str
    """Sentence for people: what is wrong and what to write instead."""
    line: int | None = None
    """Line in the file, from 1; None when the problem has no place in a file."""
    column: int | None = None
    """Column in the line, from 1; None when the problem has no place in a file."""
    severity: Severity = Severity.ERROR
    """Whether it forbids a deployment."""
