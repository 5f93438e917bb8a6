"""What ``cloister doctor`` finds: one finding for each check, with its remedy.

The command line runs the checks of the cluster; each program brings those of its own settings by an
entry point of the group ``cloister.checks``: a coroutine that takes the path of the settings.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Finding", "FindingLevel", "failed", "listed", "passed", "warned"]


class FindingLevel(StrEnum):
    """How a check ended."""

    PASS = "pass"  # noqa: S105 - the word, no password
    """It is as it should be."""
    WARN = "warn"
    """It works, or could not be checked; somebody should look."""
    FAIL = "fail"
    """It does not work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    check: str
    """What was checked, in a few words; stable."""
    level: FindingLevel
    """How it ended."""
    message: str
    """What was found."""
    remedy: str = ""
    """What to do, as an imperative sentence; empty where nothing is wrong."""


def passed(check: str, message: str) -> Finding:
    """Build the finding of a check that found nothing wrong."""
    return Finding(check, FindingLevel.PASS, message)


def warned(check: str, message: str, remedy: str) -> Finding:
    """Build the finding of something that somebody should look at."""
    return Finding(check, FindingLevel.WARN, message, remedy)


def failed(check: str, message: str, remedy: str) -> Finding:
    """Build the finding of something that does not work."""
    return Finding(check, FindingLevel.FAIL, message, remedy)


NAMED = 5
"""Objects that a message names at most."""


def listed(names: Sequence[str]) -> str:
    """Return the first names and how many follow."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
