"""Merge patches: applied to the first object they result in the second."""

from itertools import product
from typing import Any

import pytest

from cloister_operator.writer import merge_patch

OBJECTS: tuple[dict[str, Any], ...] = (
    {},
    {"a": 1},
    {"a": 2, "b": False},
    {"a": {"x": 1}},
    {"a": {"x": 1, "y": [1]}},
    {"a": {"x": {"z": 1}}, "b": ""},
    {"a": {}},
    {"a": [{"x": 1}]},
    {"c": 0},
)


def merged(target: Any, patch: Any) -> Any:
    """Apply a patch as RFC 7396 defines it."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


@pytest.mark.parametrize(("before", "after"), list(product(OBJECTS, OBJECTS)))
def test_a_merge_patch_turns_one_object_into_the_other(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    patch = merge_patch(before, after)
    assert merged(before, patch) == after
    assert (patch == {}) is (before == after)
