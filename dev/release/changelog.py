"""Reads sections of CHANGELOG.md (https://keepachangelog.com)."""

import re
from typing import Final

HEADING: Final = re.compile(r"^## +\[?(?P<name>[^\]\s]+)\]?.*$", re.MULTILINE)


def section(changelog: str, version: str) -> str:
    """Return what the changelog says of a version, without its heading; empty = nothing."""
    headings = list(HEADING.finditer(changelog))
    for number, heading in enumerate(headings):
        if heading["name"] == version:
            end = headings[number + 1].start() if number + 1 < len(headings) else len(changelog)
            text = changelog[heading.end() : end].strip()
            return f"{text}\n" if text else ""
    return ""


def changes_of(changelog: str, version: str) -> str:
    """Return what a release changes; of a pre-release without a section what is unreleased."""
    return section(changelog, version) or unreleased(changelog)


def unreleased(changelog: str) -> str:
    """Return what has changed since the last version; empty = nothing."""
    return section(changelog, "Unreleased")
