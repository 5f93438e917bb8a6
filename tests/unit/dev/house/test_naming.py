"""One name for one public class, and docstrings that begin with the field's words."""

from pathlib import Path

import pytest

from dev.house.naming import check_classes, check_docstrings, check_phrases, check_plain


def test_a_second_public_class_of_one_name_is_found() -> None:
    texts = {
        Path("api/cloister_api/one.py"): "class Report: ...\n",
        Path("crds/cloister_crds/two.py"): "\n\nclass Report: ...\n",
        Path("crds/cloister_crds/three.py"): "class Other: ...\n",
    }
    (finding,) = check_classes(texts)
    assert (finding.path, finding.line) == (Path("crds/cloister_crds/two.py"), 3)
    assert "api/cloister_api/one.py" in finding.message


def test_private_nested_and_test_classes_may_share_names() -> None:
    texts = {
        Path("api/cloister_api/one.py"): "class _Report: ...\nclass A:\n    class Inner: ...\n",
        Path("api/cloister_api/two.py"): "class _Report: ...\nclass B:\n    class Inner: ...\n",
        Path("tests/unit/test_one.py"): "class A: ...\n",
    }
    assert not list(check_classes(texts))


@pytest.mark.parametrize("first", ["Answer", "Answers", "Give", "Tell", "Tells", "Say"])
def test_docstrings_begin_with_the_words_of_the_field(first: str) -> None:
    text = f'def f():\n    """{first} the place of a key."""\n'
    (finding,) = check_docstrings(Path("api/cloister_api/one.py"), text)
    assert finding.line == 2
    assert "Return" in finding.message


def test_other_docstrings_pass() -> None:
    text = '"""Answers of the API."""\n\ndef f():\n    """Return the place of a key."""\n'
    assert len(list(check_docstrings(Path("api/cloister_api/one.py"), text))) == 1
    assert not list(
        check_docstrings(Path("api/cloister_api/one.py"), text.replace("Answers", "Responses"))
    )


@pytest.mark.parametrize("phrase", ["written anew", "x is none of a, b", "it is no name of ours"])
def test_phrases_that_are_not_english_are_found(phrase: str) -> None:
    (finding,) = check_phrases(Path("docs/page.md"), f"A page.\n\nHere {phrase}.\n")
    assert finding.line == 3


def test_plain_phrases_pass() -> None:
    text = "It is written again, is not one of them, and there is no name.\n"
    assert not list(check_phrases(Path("docs/page.md"), text))


@pytest.mark.parametrize(
    ("phrase", "better"),
    [
        ("Whoever may write", "anyone"),
        ("read by the API alone", "only"),
        ("two lookups at once", "concurrently"),
        ("the key; None = there is none", "None if"),
        ("Unset = the default one", "means"),
        ("the note beside an image", "next to"),
        ("it continues by itself", "automatically"),
        ("it failed for good", "permanently"),
        ("the old release goes on", "continues"),
        ("the new one takes over", "promoted"),
        ("what spec asks for", "requests"),
        ("a user has to change it", "must"),
        ("the body: it is no form", "is not a"),
    ],
)
def test_phrases_that_are_not_plain_are_found(phrase: str, better: str) -> None:
    (finding,) = check_plain(Path("api/cloister_api/one.py"), f'"""A module.\n\n{phrase}."""\n')
    assert finding.line == 3
    assert better in finding.message


@pytest.mark.parametrize(
    "text",
    [
        "key: str | None = field(repr=False)",
        "unset = unset_variables(container)",
        "found: dict[str, str] | None = start",
        "There is no name, and it is no longer needed.",
    ],
)
def test_code_and_plain_sentences_pass(text: str) -> None:
    assert not list(check_plain(Path("api/cloister_api/one.py"), text))
