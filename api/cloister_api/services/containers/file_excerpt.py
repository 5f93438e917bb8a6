"""The lines of a configuration file around its problems, to be shown beside them."""

import re
from collections.abc import Iterable

from cloister_crds.problems import Problem

__all__ = ["excerpt"]

AROUND = 3
"""Lines that are shown before a problem's line, and after it."""
LONGEST_LINE = 400
"""Characters of a line that are shown."""
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""Line breaks as the parser counts them (YAML 1.1, 5.4)."""


def excerpt(file: bytes, problems: Iterable[Problem]) -> dict[str, str]:
    """Return the lines around problems by their numbers, in order.

    Parameters
    ----------
    file
        The file; what is no UTF-8 in it is replaced.
    problems
        Problems; those without a place in the file have no lines.
    """
    lines = _BREAK.split(file.decode("utf-8", "replace"))
    wanted = {
        number
        for problem in problems
        if problem.line is not None
        for number in range(problem.line - AROUND, problem.line + AROUND + 1)
    }
    return {
        str(number): lines[number - 1][:LONGEST_LINE]
        for number in sorted(wanted)
        if 1 <= number <= len(lines)
    }
