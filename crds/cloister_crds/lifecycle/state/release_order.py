"""The order of releases: by the time of publication, and within one second by version. Pure."""

import re
from datetime import datetime

__all__ = ["release_order", "version_order"]

_SEMANTIC = re.compile(r"v?([0-9]+)\.([0-9]+)\.([0-9]+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")
_NUMBERS = re.compile(r"([0-9]+)")
_END = (0, 0, "")
"""End of a version without pre-release; before anything that is longer."""
_PRERELEASE = (-1, 0, "")
"""Begin of a pre-release, which is before its version."""

Part = tuple[int, int, str]


def release_order(published: datetime, tag: str) -> tuple[datetime, tuple[Part, ...]]:
    """Return the sort key of a release: that of a later one is larger."""
    return (published, version_order(tag))


def version_order(tag: str) -> tuple[Part, ...]:
    """Return the sort key of a tag by its version.

    Semantic versions are compared as such (semver.org, section 11), with or without a leading v; in
    other tags numbers count as numbers, so that v1.10 follows v1.9.
    """
    semantic = _SEMANTIC.fullmatch(tag)
    if semantic is None:
        return (*_parts(tag.removeprefix("v")), _END)
    core = _parts(".".join(semantic.groups()[:3]))
    if semantic[4] is None:
        return (*core, _END)
    return (*core, _PRERELEASE, *(_identifier(each) for each in semantic[4].split(".")))


def _parts(text: str) -> tuple[Part, ...]:
    return tuple(
        (1, int(part), "") if part.isdecimal() else (0, 0, part)
        for part in _NUMBERS.split(text)
        if part
    )


def _identifier(text: str) -> Part:
    """Return the order of an identifier of a pre-release: numbers are before words."""
    return (0, int(text), "") if text.isdecimal() and text.isascii() else (1, 0, text)
