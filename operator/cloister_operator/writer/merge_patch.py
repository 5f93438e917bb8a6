"""The difference between two statuses as a merge patch."""

from typing import Any

__all__ = ["merge_patch"]

Object = dict[str, Any]


def merge_patch(before: Object, after: Object) -> Object:
    """Return the patch that turns one object into another (RFC 7396, "JSON Merge Patch").

    Parameters
    ----------
    before
        The present object.
    after
        The desired object.

    Returns
    -------
    dict[str, Any]
        The changed keys; null for removed ones. Empty when the two are equal. Lists are replaced
        as a whole.
    """
    patch: Object = {name: None for name in before if name not in after}
    for name, value in after.items():
        old = before.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            inner = merge_patch(old, value)
            if inner:
                patch[name] = inner
        elif name not in before or value != old:
            patch[name] = value
    return patch
