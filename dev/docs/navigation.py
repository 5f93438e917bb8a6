"""The pages of the site and their order, as navigation.yaml has them."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

NAVIGATION = Path("dev/docs/navigation.yaml")
"""Where they are listed; relative to the root of the repository."""
FRONT = (
    "README.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "charts/cloister/README.md",
)
"""Pages that are not in docs."""


def read(root: Path) -> list[Any]:
    """Return the navigation in the form of MkDocs: paths, and titles with a list of entries."""
    found: list[Any] = yaml.safe_load((root / NAVIGATION).read_text(encoding="utf-8"))
    return found


def is_page(name: str) -> bool:
    """Return whether a file of the repository is a page of the site."""
    return name in FRONT or (name.startswith("docs/") and name.endswith(".md"))


def names(entries: list[Any]) -> Iterator[str]:
    """Return the paths of a navigation in order; a folder ends with a slash."""
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            for inner in entry.values():
                yield from names(inner)


def folders(entries: list[Any], title: str = "") -> Iterator[tuple[str, str]]:
    """Return each folder of a navigation, and the title that it stands below."""
    for entry in entries:
        if isinstance(entry, str):
            if entry.endswith("/"):
                yield entry, title
        else:
            for inner_title, inner in entry.items():
                yield from folders(inner, inner_title)


def expanded(entries: list[Any], pages: Iterable[str]) -> list[Any]:
    """Return a navigation with the pages of each folder in its place.

    Parameters
    ----------
    pages
        All pages, in the order in which those of a folder are to stand.
    """
    found: list[Any] = []
    for entry in entries:
        if not isinstance(entry, str):
            found.append({title: expanded(inner, pages) for title, inner in entry.items()})
        elif entry.endswith("/"):
            found += [page for page in pages if page.rpartition("/")[0] + "/" == entry]
        else:
            found.append(entry)
    return found
