"""How much memory a value takes, for caches that are bounded in bytes."""

import dataclasses
import sys
from collections.abc import Iterable

from pydantic import BaseModel

__all__ = ["memory_size"]


def memory_size(value: object) -> int:
    """Return the bytes that a value and everything that it refers to take.

    What is referred to several times is counted once. Records, models, containers and their
    elements are followed; any other object counts for itself alone.
    """
    seen: set[int] = set()
    total, rest = 0, [value]
    while rest:
        each = rest.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        total += sys.getsizeof(each)
        rest.extend(_parts(each))
    return total


def _parts(value: object) -> Iterable[object]:
    """Return what a value refers to."""
    if isinstance(value, str | bytes):
        return ()
    if isinstance(value, dict):
        return (*value.keys(), *value.values())
    if isinstance(value, tuple | list | set | frozenset):
        return value
    if isinstance(value, BaseModel):
        return (value.__dict__, value.model_fields_set, *value.__dict__.values())
    if dataclasses.is_dataclass(value):
        return [getattr(value, each.name) for each in dataclasses.fields(value)]
    return ()
