"""The manual's table of what becomes of a container's release (docs/lifecycle.md)."""

import re
from pathlib import Path

__all__ = ["CELLS", "NAMED", "STATES", "UPDATE", "expected_tag"]

MANUAL = Path(__file__).parents[3] / "docs" / "lifecycle.md"
HEADING = "## What becomes of the release"


def _rows() -> list[list[str]]:
    section = MANUAL.read_text().split(HEADING, 1)[1].split("\n## ", 1)[0]
    rows = [
        re.split(r"\s*\|\s*", line.strip("| \n")) for line in section.splitlines() if "|" in line
    ]
    return [rows[0], *rows[2:]]


STATES: tuple[str, ...] = tuple(_rows()[0][1:])
"""States of a container, as the table's head names them."""
CELLS: dict[tuple[str, str], str] = {
    (row[0], state): cell
    for row in _rows()[1:]
    for state, cell in zip(STATES, row[1:], strict=True)
}
"""What becomes of the tag, by action and state."""

PRESENT = "v1.0.0"
FOLLOWED = "v1.1.0"
UPDATE = "v1.1.0"
NAMED = "v1.2.0"


def expected_tag(word: str, state: str) -> str | None:
    """Return the tag that a cell's word means; None = the action is refused.

    In the tests v1.0.0 was created, v1.1.0 is what an update brings or what is followed (then it is
    the present release), and v1.2.0 is what an action names.
    """
    present = FOLLOWED if state == "following" else PRESENT
    tags = {"present": present, "newest": FOLLOWED, "update": UPDATE, "named": NAMED, "409": None}
    return tags[word]
