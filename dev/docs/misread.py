"""What the site shows as text, and a forge as a list or a table.

Python-Markdown takes a list or a table that follows a paragraph without an empty line for a part
of it.
"""

import re
from collections.abc import Iterator
from pathlib import Path

PREFORMATTED = re.compile(r"<pre.*?</pre>", re.DOTALL)
SIGN = re.compile(r"^(?:[*-] |[0-9]+\. |\| ).{0,60}", re.MULTILINE)
"""The start of an item or a row, which HTML has no use for."""


def misread(site: Path) -> list[str]:
    """Return the page and the start of each line that was not understood."""
    return [
        f"{page.relative_to(site)}: text in place of a list or table: {line}"
        for page in sorted(site.rglob("*.html"))
        for line in _lines(page.read_text(encoding="utf-8"))
    ]


def _lines(html: str) -> Iterator[str]:
    for match in SIGN.finditer(PREFORMATTED.sub("", html)):
        yield match[0]
