"""Each threat of the security page and each attack of the list has a test that exists."""

import re
from pathlib import Path

import pytest

from tests.support.documented_tests import found_in, missing_tests, named_tests, rows_of

ROOT = Path(__file__).parents[2]
SECURITY = "docs/security.md"
ATTACKS = "docs/development/attacks.md"
PLACE = re.compile(r"`((?:tests|operator/guest)/[A-Za-z0-9_./]*)(?:::([Tt]est\w+))?`")
TEST = re.compile(r"^(?:async )?(?:def test_|func Test)", re.MULTILINE)


def threats() -> list[str]:
    """Return the rows of the table of threats."""
    text = (ROOT / SECURITY).read_text("utf-8").partition("## Threats and countermeasures")[2]
    rows = [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    return [row for row in rows if not row.startswith("| threat |")]


def has_tests(place: Path) -> bool:
    """Return whether a file or a folder has tests."""
    if place.is_dir():
        return any(has_tests(file) for file in place.rglob("*test*") if file.is_file())
    code = place.suffix in {".py", ".go"} and place.is_file()
    return code and TEST.search(place.read_text("utf-8")) is not None


def exists(place: str, name: str) -> bool:
    """Return whether a test, or a file or folder with tests, exists."""
    if not name:
        return has_tests(ROOT / place)
    return name in found_in(place.removeprefix("tests/").removeprefix("operator/guest/"))


@pytest.mark.parametrize("row", threats(), ids=lambda row: row[2:50])
def test_each_threat_names_tests_that_exist(row: str) -> None:
    named = PLACE.findall(row.split("|")[-2])
    assert named, "the row names no test"
    assert not [place for place in named if not exists(*place)]


@pytest.mark.parametrize("row", rows_of(ATTACKS, "attack"), ids=lambda row: row[2:50])
def test_each_attack_names_tests_that_exist(row: str) -> None:
    named = named_tests(row)
    assert named, "the row names no test"
    assert missing_tests(named) == []
