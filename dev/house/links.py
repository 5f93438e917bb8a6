"""Whether links between documents, and citations of the specification, lead anywhere.

A link of a Markdown file must name a file of the repository and, behind ``#``, a heading or an
anchor in it; one whose text is the name of a test must name a file that has the test. A citation
is ``spec`` and a number of ``docs/spec``: a rule, or a whole section; the heading of a text is not
one.
"""

import posixpath
import re
import subprocess
from collections.abc import Iterator, KeysView
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from dev.house.finding import Finding

SPECIFICATION = "docs/spec/"
"""Folder whose anchors are the numbers of rules and sections."""
CITING = (".go", ".md", ".py", ".toml", ".yaml")
"""Files whose citations are checked."""
FENCED = re.compile(r"^ *(```+|~~~+)[^\n]*\n.*?(^ *\1 *$|\Z)", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(
    r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^ *\[[^\]]+\]: *(\S+)", re.MULTILINE
)
HEADING = re.compile(r"^ {0,3}#{1,6} +(.+?) *#* *$", re.MULTILINE)
ANCHOR = re.compile(r"\b(?:id|name)=\"([^\"]+)\"")
TEST_LINK = re.compile(r"\[`(test_\w+|Test\w+)`\]\(([^)#]+)\)")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
LINE_ANCHOR = re.compile(r"L([0-9]+)(?:-L([0-9]+))?")
CITATION = re.compile(r"\bspec\s+([0-9]+(?:\.[0-9]+)?(?:(?:, | and | to )[0-9]+(?:\.[0-9]+)?)*)\b")
NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
UNNUMBERED = re.compile(
    r"""
    \b[Cc]lient[-\s]+contract\b
    | (?<![-\w])config[-]file\b  # not the flag of a program
    | \bDESIGN(?:\.md|,?\s+section)\b
    | (?<!\w)\((?:the\s+)?spec(?:ification)?,\s+(?:\"[A-Z]|section\b|rule\b)
    | \bthe\s+specification,?\s+\(?\"
    | \b[Ss]ources?:\s+(?:the\s+)?spec(?:ification)?\b(?!\s+[0-9])
    """,
    re.VERBOSE,
)
"""Citations of texts by name or heading."""
TEXT_LINK = re.compile(r"\[[^\]]*\]\([^)]*\)")


def check(root: Path) -> list[Finding]:
    """Check all links and citations of the checkout."""
    files = repository_files(root)
    numbers = _numbers(root, files)
    return sorted(
        [
            *_repeated(numbers),
            *_dead_links(root, files),
            *_missing_tests(root, files),
            *_dangling_citations(root, files, numbers.keys()),
            *_unnumbered_citations(root, files),
        ]
    )


def links(text: str) -> Iterator[tuple[int, str]]:
    """Return the line and target of each link in a Markdown text, code left out."""
    prose = without_code(text)
    for match in LINK.finditer(prose):
        yield _line(prose, match.start()), match[1] or match[2]


@cache
def anchors(text: str) -> frozenset[str]:
    """Return what a link to a Markdown text can name behind ``#``.

    Headings as GitHub makes anchors of them (a repeated one gets ``-1``, ``-2``, …), and the
    ``id`` or ``name`` of HTML elements.
    """
    found = set(ANCHOR.findall(without_code(text)))
    for match in HEADING.finditer(FENCED.sub("", text)):
        slug = _slug(match[1])
        count, numbered = 0, slug
        while numbered in found:
            count += 1
            numbered = f"{slug}-{count}"
        found.add(numbered)
    return frozenset(found)


def citations(text: str) -> Iterator[tuple[int, str]]:
    """Return the line and each number of the citations in a text, such as ``4.3`` or ``4``."""
    for match in CITATION.finditer(text):
        for number in NUMBER.findall(match[1]):
            yield _line(text, match.start()), number


def unnumbered(text: str) -> Iterator[tuple[int, str]]:
    """Return the line and words of each citation that has no number."""
    for match in UNNUMBERED.finditer(text):
        yield _line(text, match.start()), " ".join(match[0].split())


def repository_files(root: Path) -> list[str]:
    """Return the files of the repository, new ones included, relative to the root, in order."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    # A file that was removed and not committed yet is still listed.
    return sorted({name for name in listed.split("\0") if name and (root / name).is_file()})


def _numbers(root: Path, files: list[str]) -> dict[str, list[str]]:
    """Return the numbers of the specification, each with the files that have it."""
    numbers: dict[str, list[str]] = {}
    for name in files:
        if name.startswith(SPECIFICATION) and name.endswith(".md"):
            for number in ANCHOR.findall(without_code(_read(root, name))):
                numbers.setdefault(number, []).append(name)
    return numbers


def _repeated(numbers: dict[str, list[str]]) -> Iterator[Finding]:
    for number, (first, *others) in numbers.items():
        for name in others:
            message = f"spec {number} is in {first} too; numbers are unique"
            yield Finding(Path(name), 0, message)


def _dead_links(root: Path, files: list[str]) -> Iterator[Finding]:
    known = {*files, *(str(parent) for name in files for parent in Path(name).parents)}
    for name in files:
        if name.endswith(".md"):
            for line, target in links(_read(root, name)):
                trouble = _trouble(root, name, target, known)
                if trouble:
                    yield Finding(Path(name), line, f"link to {target}: {trouble}")


def _missing_tests(root: Path, files: list[str]) -> Iterator[Finding]:
    texts: dict[str, str] = {}
    for name in files:
        text = _read(root, name) if name.endswith(".md") else ""
        for match in TEST_LINK.finditer(text):
            test, target = match.groups()
            place = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
            if place not in texts:
                texts[place] = _read(root, place) if (root / place).is_file() else ""
            if not re.search(rf"^(?:async )?(?:def|func) {test}\(", texts[place], re.MULTILINE):
                line = _line(text, match.start())
                yield Finding(Path(name), line, f"{place} has no test {test}; correct the name")


def _dangling_citations(root: Path, files: list[str], numbers: KeysView[str]) -> Iterator[Finding]:
    for name in files:
        if name.endswith(CITING):
            for line, number in citations(_read(root, name)):
                if number not in numbers:
                    message = f"spec {number} does not exist; see docs/spec for the numbers"
                    yield Finding(Path(name), line, message)


def _unnumbered_citations(root: Path, files: list[str]) -> Iterator[Finding]:
    for name in files:
        if name.endswith(CITING) and not name.startswith(SPECIFICATION):
            text = _read(root, name)
            if name.endswith(".md"):
                text = TEXT_LINK.sub(_blank, text)  # A link is checked by itself.
            for line, words in unnumbered(text):
                message = f"{words}: cite a rule of docs/spec by its number, such as spec 4.3"
                yield Finding(Path(name), line, message)


def _read(root: Path, name: str) -> str:
    return (root / name).read_text(encoding="utf-8")


def _trouble(root: Path, name: str, target: str, known: set[str]) -> str:
    """Return why a link leads nowhere; empty when it leads somewhere, or out of the repository."""
    if ELSEWHERE.match(target):
        return ""
    path, _, fragment = target.partition("#")
    place = name
    if path:
        start = "" if path.startswith("/") else posixpath.dirname(name)
        place = posixpath.normpath(posixpath.join(start, unquote(path).lstrip("/")))
    if place not in known:
        return f"there is no {place} in the repository; correct the path"
    if not fragment or not (root / place).is_file():
        return ""
    text = _read(root, place)
    if _has_anchor(place, text, unquote(fragment)):
        return ""
    return f"{place} has no heading or anchor {fragment}; correct the part after #"


def _has_anchor(place: str, text: str, fragment: str) -> bool:
    if place.endswith(".md"):
        return fragment in anchors(text)
    if place.endswith(".html"):
        return fragment in ANCHOR.findall(text)
    lines = LINE_ANCHOR.fullmatch(fragment)
    return lines is not None and int(lines[2] or lines[1]) <= text.count("\n")


def _slug(heading: str) -> str:
    words = re.sub(r"<[^>]*>|\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", words.lower()).strip().replace(" ", "-")


def without_code(text: str) -> str:
    """Blank out code, so that what is left keeps its place."""
    for pattern in (FENCED, INLINE_CODE):
        text = pattern.sub(_blank, text)
    return text


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
