"""Lengths, names and suppressions that the house check refuses in a Python file."""

from pathlib import Path
from textwrap import dedent

import pytest

from dev.house.sources import LONGEST_FILE, LONGEST_FUNCTION, check_text

MODULE = Path("crds/cloister_crds/names.py")
TEST = Path("tests/unit/test_names.py")


def messages(place: Path, text: str) -> list[str]:
    return [finding.message for finding in check_text(place, dedent(text).lstrip("\n"))]


def test_a_tidy_module_is_clean() -> None:
    text = '''
        """Names."""

        __all__ = ["LONGEST", "Name", "name_of"]

        LONGEST = 63
    '''
    assert messages(MODULE, text) == []


def test_a_package_with_a_docstring_alone_needs_no_exports() -> None:
    assert messages(MODULE, '"""Names."""\n') == []


def test_a_long_file_is_named_with_its_length() -> None:
    text = '"""Names."""\n__all__ = []\n' + "x = 1\n" * LONGEST_FILE
    assert messages(MODULE, text) == ["502 lines; 500 at most, split it by subject"]


def test_a_docstring_does_not_count_as_length_of_a_function() -> None:
    body = "    x = 1\n" * (LONGEST_FUNCTION - 1)
    head = '"""Names."""\n__all__ = ["f"]\ndef f():\n'
    documented = head + '    """Say.\n\n' + "    More.\n" * 20 + '    """\n' + body
    assert messages(MODULE, documented) == []
    (long,) = messages(MODULE, head + body + "    y = 1\n")
    assert long == "f has 61 lines; 60 at most, split it"


@pytest.mark.parametrize(
    "block",
    [
        "class C:",
        "async def g():",
        "if x:\n  y\nelse:",
        "for x in y:",
        "with x:",
        "try:\n  x\nexcept E:",
        "try:\n  x\nfinally:",
        "match x:\n case 1:",
    ],
)
def test_a_long_function_is_found_wherever_it_is_defined(block: str) -> None:
    body = "    x = 1\n" * (LONGEST_FUNCTION + 1)
    text = f'"""Names."""\n{block}\n  def f():\n{body}'
    found = [each for each in messages(TEST, text) if each.startswith("f has")]
    assert found == ["f has 62 lines; 60 at most, split it"]


def test_a_missing_docstring_and_missing_exports_are_two_findings() -> None:
    found = messages(MODULE, "x = 1\ny = 2\n")
    assert [message.split(";")[0] for message in found] == ["no docstring", "no __all__"]


@pytest.mark.parametrize("place", ["api/cloister_api/names.py", "dev/names.py"])
def test_only_libraries_list_what_they_export(place: str) -> None:
    assert messages(Path(place), '"""Names."""\nx = 1\ny = 2\n') == []


def test_tests_export_nothing() -> None:
    assert messages(TEST, '"""Names."""\nx = 1\ny = 2\n') == []


@pytest.mark.parametrize(
    ("comment", "right"),
    [
        ("# noqa: S105 - a pattern of names", True),
        ("# noqa: S105, E501 - a pattern of names", True),
        ("# noqa: S105", False),
        ("# noqa", False),
        ("# NOQA", False),
        ("# type: ignore[arg-type]  # kopf's annotation is wrong", True),
        ("# type: ignore[arg-type]", False),
        ("# type: ignore", False),
    ],
)
def test_each_suppression_has_a_code_and_a_reason(comment: str, *, right: bool) -> None:
    assert (messages(TEST, f'"""Names."""\nx = 1  {comment}\n') == []) is right


def test_comments_in_strings_are_not_suppressions() -> None:
    assert messages(TEST, '"""Names."""\nx = "# noqa"\n') == []


@pytest.mark.parametrize(
    ("statement", "right"),
    [
        ("asyncio.sleep(0)", True),
        ("asyncio.sleep(0.1)", False),
        ("time.sleep(1)", False),
        ("from time import sleep", False),
        ("clock.sleep(1)", True),
    ],
)
def test_tests_do_not_sleep(statement: str, *, right: bool) -> None:
    text = f'"""Names."""\n{statement}\n'
    assert (messages(TEST, text) == []) is right
    assert messages(Path("tests/support/waiting.py"), text + "__all__ = []\n") == []
