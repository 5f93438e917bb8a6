"""Names of classes and first words of docstrings: unique, and in the words of the field."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from dev.house.finding import Finding
from dev.house.layout import SOURCE_ROOTS, python_files

FIRST_WORDS: Final = {
    "Answer": "Return",
    "Answers": "Return",
    "Give": "Return",
    "Tell": "Return or Report",
    "Tells": "Return or Report",
    "Say": "Return or Report",
}
"""First words of docstrings that describe nothing, and what to write."""
SPOKEN: Final = re.compile(rf"\b(?:{'|'.join(FIRST_WORDS)})\b")
"""The same words wherever they are: only files that have one are parsed for docstrings."""
DIALECT: Final = re.compile(r"\banew\b|\bis (?:none|no [a-z]+) of\b")
"""Turns of phrase that are not English: "again", "is not one of", "there is no"."""
PLAIN: Final = {
    r"\b[Ww]hoever\b": "anyone who can",
    r"\b[Aa]lone\b": "only",
    r"\b[Aa]t once\b": "immediately, or concurrently",
    r"(?<!\| )\b(?:None|[Ee]mpty|[Uu]nset) = (?![\w.]*[(_.])[a-z]\w*": "None if, or None means",
    r"\b[Bb]eside\b": "next to, or in addition to",
    r"\b[Bb]y itself\b": "automatically, or on its own",
    r"\bfor good\b": "permanently",
    r"\b[Gg]oes on\b": "continues",
    r"\b[Tt]akes over\b": "is promoted, or receives",
    r"\b[Aa]sks for\b": "requests",
    r"\b(?:[Hh]as|[Hh]ave) to\b": "must",
    r"(?<!here )\b(?:is|are) no (?!longer\b|more\b)[a-z]+": "is not a",
}
"""Phrases that readers stumble over, and the terms of the field."""
PLAIN_SOURCES: Final = ("api/cloister_api", "operator/cloister_operator", "crds")
"""Folders whose modules and templates are without them."""
QUOTING: Final = "docs/decisions"
"""The documents that may quote older words; all others are without them."""
_ANY_OF_PLAIN: Final = re.compile("|".join(PLAIN))


def check(root: Path) -> list[Finding]:
    """Check the names of every Python file of the checkout."""
    texts = {
        path.relative_to(root): path.read_text(encoding="utf-8") for path in python_files(root)
    }
    found = [*check_classes(texts)]
    for place, text in texts.items():
        found += check_docstrings(place, text)
    for path in [*texts, *_other_texts(root)]:
        found += check_phrases(path, (root / path).read_text(encoding="utf-8"))
    for path in _plain_texts(root):
        found += check_plain(path, (root / path).read_text(encoding="utf-8"))
    return sorted(found)


def _other_texts(root: Path) -> Iterator[Path]:
    for folder, pattern in (("docs", "*.md"), ("operator/guest", "*.go"), (".", "*.md")):
        paths = (root / folder).glob(pattern) if folder == "." else (root / folder).rglob(pattern)
        for path in sorted(paths):
            yield path.relative_to(root)


def _plain_texts(root: Path) -> Iterator[Path]:
    places = [(folder, pattern) for folder in PLAIN_SOURCES for pattern in ("*.py", "*.html")]
    found = [path for folder, pattern in places for path in (root / folder).rglob(pattern)]
    found += (root / "docs").rglob("*.md")
    for path in sorted(found):
        if not path.is_relative_to(root / QUOTING):
            yield path.relative_to(root)


def check_plain(place: Path, text: str) -> Iterator[Finding]:
    """Refuse the phrases of `PLAIN`.

    Parameters
    ----------
    place
        Path relative to the checkout.
    """
    # Most files have none: one search of the whole text is enough for them.
    if not _ANY_OF_PLAIN.search(text):
        return
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, better in PLAIN.items():
            for phrase in re.finditer(pattern, line):
                yield Finding(place, number, f'"{phrase[0]}"; write "{better}"')


def check_phrases(place: Path, text: str) -> Iterator[Finding]:
    """Refuse the phrases of `DIALECT` in source and documents.

    Parameters
    ----------
    place
        Path relative to the checkout; this module and its tests quote the phrases.
    """
    if place.stem in {"naming", "test_naming"}:
        return
    for number, line in enumerate(text.splitlines(), 1):
        for phrase in DIALECT.findall(line):
            yield Finding(place, number, f'"{phrase}"; write "again", "is not one of", "there is"')


def check_classes(texts: Mapping[Path, str]) -> Iterator[Finding]:
    """Refuse two public classes of one name in the source packages.

    The two programs share the clients and the contract, so a name that is unique over all source
    packages is unique in each program.

    Parameters
    ----------
    texts
        Each file's text by its path relative to the checkout.
    """
    places: defaultdict[str, list[tuple[Path, int]]] = defaultdict(list)
    for place, text in texts.items():
        if place.parts[0] in SOURCE_ROOTS:
            for node in ast.parse(text).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append((place, node.lineno))
    for name, found in places.items():
        for place, line in found[1:]:
            first = found[0][0].as_posix()
            yield Finding(place, line, f"class {name} is also in {first}; rename one of them")


def check_docstrings(place: Path, text: str) -> Iterator[Finding]:
    """Refuse docstrings that begin with a word of `FIRST_WORDS`.

    Parameters
    ----------
    place
        Path relative to the checkout.
    """
    if not SPOKEN.search(text):
        return
    documented = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, documented):
            continue
        docstring = ast.get_docstring(node) or ""
        first = docstring.split(maxsplit=1)[0] if docstring.strip() else ""
        if first in FIRST_WORDS:
            line = node.body[0].lineno
            yield Finding(place, line, f'docstring begins with "{first}"; {FIRST_WORDS[first]}')
