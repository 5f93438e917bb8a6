"""Names that stand twice in one object of JSON.

JSON leaves open what that means (RFC 8259, section 4); parsers take the last one, so that what
stands before it would be accepted and then ignored.
"""

import json
from collections import Counter
from typing import Any

__all__ = ["names_twice"]


class Pairs(tuple[tuple[str, Any], ...]):
    """The names and values of a JSON object as they were sent."""

    __slots__ = ()


def names_twice(body: bytes) -> list[str]:
    """Answer the names that stand twice in one object of a body, with their paths.

    Parameters
    ----------
    body
        The body. What is no JSON has no names; whoever parses it says so.
    """
    try:
        whole = json.loads(body, object_pairs_hook=Pairs)
    except (ValueError, RecursionError):
        return []
    found: list[str] = []
    left: list[tuple[str, Any]] = [("", whole)]
    while left:
        path, value = left.pop()
        if isinstance(value, Pairs):
            times = Counter(name for name, _ in value)
            found += [path + name for name, count in times.items() if count > 1]
            left += [(f"{path}{name}.", each) for name, each in value]
        elif isinstance(value, list):
            left += [(f"{path}{number}.", each) for number, each in enumerate(value)]
    return sorted(set(found))
