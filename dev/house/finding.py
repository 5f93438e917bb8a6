"""A violation of a project rule, and its place."""

from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One violation."""

    path: Path
    """File, relative to the checkout."""
    line: int
    """Line, from 1; 0 = the file as a whole."""
    message: str
    """What is wrong and what to do."""

    @override
    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else str(self.path)
        return f"{place}: {self.message}"
