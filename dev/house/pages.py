"""Whether a reader finds every page of the documentation.

On a forge the way begins at docs/README.md and goes by links; the site has a navigation.
"""

import posixpath
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from dev.docs import navigation
from dev.house import links
from dev.house.finding import Finding

START = "docs/README.md"


def check(root: Path) -> list[Finding]:
    """Find pages that no link leads to, and what is wrong with the navigation of the site."""
    pages = [name for name in links.repository_files(root) if navigation.is_page(name)]
    return sorted([*_unreachable(root, pages), *_navigation(root, pages)])


def _unreachable(root: Path, pages: list[str]) -> Iterator[Finding]:
    found, new = {START}, [START]
    while new:
        for page in _linked(root, new.pop(), pages):
            if page not in found:
                found.add(page)
                new.append(page)
    for page in pages:
        if page not in found:
            message = f"no way of links leads here from {START}; link it from a page"
            yield Finding(Path(page), 0, message)


def _linked(root: Path, name: str, pages: list[str]) -> Iterator[str]:
    """Return the pages that a page links; a link to a folder leads to those in it."""
    for _, target in links.links((root / name).read_text(encoding="utf-8")):
        path = unquote(target.partition("#")[0])
        if path and not links.ELSEWHERE.match(target):
            place = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
            yield from (each for each in pages if place in {each, posixpath.dirname(each)})


def _navigation(root: Path, pages: list[str]) -> Iterator[Finding]:
    entries = navigation.read(root)
    counted = Counter(navigation.names(navigation.expanded(entries, pages)))
    for page in pages:
        if page not in counted:
            message = f"not in {navigation.NAVIGATION}; add it where a newcomer would read it"
            yield Finding(Path(page), 0, message)
    for name, count in counted.items():
        if name not in pages:
            yield Finding(navigation.NAVIGATION, 0, f"there is no page {name}; remove it")
        elif count > 1:
            yield Finding(navigation.NAVIGATION, 0, f"{name} stands {count} times; once is enough")
    for folder, _ in navigation.folders(entries):
        if not any(page.startswith(folder) for page in pages):
            yield Finding(navigation.NAVIGATION, 0, f"there is no page in {folder}; remove it")
