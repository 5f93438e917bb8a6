"""A copy of the pages for the program that builds the site, with links that work there.

On a forge a link may lead to any file of the repository, or to a folder. The site has pages alone:
a link to another file leads to a forge, if one is named, and is plain text otherwise; a folder of
pages has an index.
"""

import posixpath
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from dev.docs import navigation
from dev.house import links

LINK = re.compile(r"\[([^\[\]]*)\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
"""A link within a line or two: its text and target."""
TITLE = re.compile(r"^# +(.+)$", re.MULTILINE)
README, INDEX = "README.md", "index.md"


def stage(root: Path, to: Path, source: str) -> list[Any]:
    """Copy the pages and what belongs to them, and return the navigation.

    Parameters
    ----------
    source
        Address of the repository's files on a forge, such as ``https://HOST/OWNER/NAME/blob/main``;
        empty = none.
    """
    entries = navigation.read(root)
    present = links.repository_files(root)
    files = [name for name in present if name.startswith("docs/") or navigation.is_page(name)]
    pages = [name for name in files if navigation.is_page(name)]
    indexes = {
        folder + INDEX: title
        for folder, title in navigation.folders(entries)
        if folder + README not in pages
    }
    known = {*files, *indexes}
    others = {*present, *(str(parent) for name in present for parent in Path(name).parents)} - known
    for name in files:
        path = to / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name in pages:
            text = (root / name).read_text(encoding="utf-8")
            path.write_text(rewritten(text, name, known, others, source), encoding="utf-8")
        else:
            shutil.copyfile(root / name, path)
    for name, title in indexes.items():
        (to / name).write_text(_index(root, name, title, pages), encoding="utf-8")
    return navigation.expanded(entries, [*indexes, *pages])


def rewritten(text: str, name: str, known: set[str], others: set[str], source: str) -> str:
    """Return a page with links that work on the site.

    A link to what is nowhere is left as it is, for MkDocs to report.

    Parameters
    ----------
    others
        Paths of further files and folders of the repository.
    source
        As of `stage`.
    """
    parts, end = [], 0
    for match in LINK.finditer(links.without_code(text)):
        target = match[2]
        path, mark, fragment = target.partition("#")
        if not path or links.ELSEWHERE.match(target):
            continue
        place = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(path)))
        if place not in others:
            continue
        index = next((each for each in (README, INDEX) if f"{place}/{each}" in known), "")
        parts.append(text[end : match.start()])
        label = text[match.start(1) : match.end(1)]
        if index:
            parts.append(f"[{label}]({path.rstrip('/')}/{index}{mark}{fragment})")
        elif source:
            parts.append(f"[{label}]({source.rstrip('/')}/{place}{mark}{fragment})")
        else:
            parts.append(label)
        end = match.end()
    return "".join([*parts, text[end:]])


def _index(root: Path, name: str, title: str, pages: Iterable[str]) -> str:
    """Return the index of a folder: the titles of its pages."""
    folder = posixpath.dirname(name)
    lines = [f"# {title}", ""]
    for page in pages:
        if posixpath.dirname(page) == folder:
            found = TITLE.search((root / page).read_text(encoding="utf-8"))
            text = found[1] if found else posixpath.basename(page)
            lines.append(f"* [{text}]({posixpath.basename(page)})")
    return "\n".join(lines) + "\n"
