"""The commands that pages name exist."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from dev.docs.navigation import is_page
from dev.house.links import repository_files, without_code

ROOT = Path(__file__).resolve().parents[4]
PAST = ("CHANGELOG.md", "docs/decisions/")
"""Pages that may name what no longer exists."""
MAKE = re.compile(r"(?:^|`|\n *)(?:\$ )?make ((?:[a-z][a-z-]* ?)+)")
CLOISTER = re.compile(r"(?:^|`|\n *|-- |kubectl )cloister ([a-z][a-z-]*)")
BUILT_IN = {"help"}


def code() -> Iterator[tuple[str, str]]:
    """Return each page with its code alone, the prose blanked out."""
    for name in repository_files(ROOT):
        if is_page(name) and not name.startswith(PAST):
            text = (ROOT / name).read_text(encoding="utf-8")
            pairs = zip(text, without_code(text), strict=True)
            yield name, "".join(one if other == " " or one == "\n" else " " for one, other in pairs)


def test_every_target_of_make_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        (page, target)
        for page, text in code()
        for words in MAKE.findall(text)
        for target in words.split()
    }
    assert len(named) > 50
    assert {(page, target) for page, target in named if target not in targets} == set()


def test_every_command_of_cloister_that_a_page_names_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = {*project["entry-points"]["cloister.commands"], *BUILT_IN}
    named = {(page, command) for page, text in code() for command in CLOISTER.findall(text)}
    assert len(named) > 30
    assert {(page, command) for page, command in named if command not in known} == set()
