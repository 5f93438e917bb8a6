"""What an audit found, and what that means for the command's exit code."""

from dataclasses import dataclass
from enum import IntEnum


class Verdict(IntEnum):
    """The exit code of an audit; the highest of several is the command's."""

    CLEAN = 0
    UNKNOWN = 1
    VULNERABLE = 2


@dataclass(frozen=True)
class Outcome:
    """What one audit says.

    Attributes
    ----------
    subject
        What was looked at, such as ``Python packages of uv.lock``.
    lines
        What was found, or why nothing could be.
    """

    subject: str
    verdict: Verdict
    lines: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the outcome as it is printed."""
        said = {
            Verdict.CLEAN: "no known vulnerability",
            Verdict.VULNERABLE: "known vulnerabilities",
            Verdict.UNKNOWN: "not audited",
        }[self.verdict]
        return "\n".join([f"{self.subject}: {said}", *(f"  {line}" for line in self.lines)])
