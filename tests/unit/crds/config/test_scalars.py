"""Words that readers of YAML take differently."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from cloister_crds.config.syntax.document import Scalar
from cloister_crds.config.syntax.scalars import ScalarKind, kind_of

if TYPE_CHECKING:
    from cloister_crds.config import ContainerConfig

SURPRISES = [
    "on",
    "off",
    "yes",
    "no",
    "Yes",
    "NO",
    "True",
    "FALSE",
    "0o7",
    "010",
    "0x1F",
    "0b1",
    "1_000",
    "+5",
    "12:30",
    "190:20:30",
    "1:30.5",
    "1e3",
    "1.10",
    ".5",
    "5.",
    ".inf",
    ".NaN",
    "-.INF",
    "00",
]


@pytest.mark.spec("40.6")
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", ScalarKind.NULL),
        ("~", ScalarKind.NULL),
        ("null", ScalarKind.NULL),
        ("true", ScalarKind.BOOL),
        ("0", ScalarKind.INTEGER),
        ("-17", ScalarKind.INTEGER),
        ("0.5", ScalarKind.FLOAT),
        ("2.0", ScalarKind.FLOAT),
        ("0.14.8", ScalarKind.TEXT),
        ("2026-01-01", ScalarKind.TEXT),
        ("1000:1000", ScalarKind.TEXT),
        ("nvidia", ScalarKind.TEXT),
        ("y", ScalarKind.TEXT),
        ("N", ScalarKind.TEXT),
        *((word, ScalarKind.AMBIGUOUS) for word in SURPRISES),
    ],
)
def test_kinds_of_plain_scalars(text: str, kind: ScalarKind) -> None:
    assert kind_of(Scalar(text, plain=True, line=1, column=1)) is kind


@pytest.mark.parametrize("text", ["", "on", "010", "true", "1"])
def test_quoted_scalars_are_text(text: str) -> None:
    assert kind_of(Scalar(text, plain=False, line=1, column=1)) is ScalarKind.TEXT


@pytest.mark.spec("40.6")
@pytest.mark.parametrize("word", SURPRISES)
def test_ambiguous_words_are_refused_as_text(verdict: Callable[..., list[str]], word: str) -> None:
    assert verdict(f"command: [{word}]") == ["containers[0].command[0] AmbiguousScalar"]
    assert verdict(f"env: [{{A: {word}}}]") == ["containers[0].env[0].A AmbiguousScalar"]


@pytest.mark.spec("40.6")
@pytest.mark.parametrize("word", ["on", "0o7", "010", "1_0"])
def test_ambiguous_words_are_refused_as_numbers(
    verdict: Callable[..., list[str]], word: str
) -> None:
    assert verdict(f"stop_timeout: {word}") == ["containers[0].stop_timeout AmbiguousScalar"]
    assert verdict(f"cpus: {word}") == ["containers[0].cpus AmbiguousScalar"]


@pytest.mark.spec("40.6")
@pytest.mark.parametrize("word", ["on", "yes", "no", "True"])
def test_ambiguous_words_are_refused_as_truth(verdict: Callable[..., list[str]], word: str) -> None:
    assert verdict(f"read_only: {word}") == ["containers[0].read_only AmbiguousScalar"]


@pytest.mark.spec("40.6")
def test_ambiguous_keys_are_refused(verdict: Callable[..., list[str]]) -> None:
    assert verdict("env: [{NO: a}]") == ["containers[0].env[0].NO AmbiguousScalar"]
    assert verdict("networks: ['no']", top="networks: {no: }") == ["networks.no AmbiguousScalar"]


@pytest.mark.spec("40.6")
def test_a_word_that_fits_needs_no_quotes(built: "Callable[..., ContainerConfig]") -> None:
    assert built("restart: no").restart == "no"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("stop_timeout: '5'", "WrongType"),
        ("stop_timeout: 5.0", "WrongType"),
        ("stop_timeout: []", "WrongType"),
        ("stop_timeout:", "WrongType"),
        ("stop_timeout: 99999999999999999999999999", "WrongType"),
        ("cpus: '0.5'", "WrongType"),
        ("cpus: {}", "WrongType"),
        ("read_only: 'true'", "WrongType"),
        ("read_only: 1", "WrongType"),
        ("working_dir: 5", "WrongType"),
        ("working_dir: true", "WrongType"),
        ("working_dir:", "WrongType"),
        ("working_dir: [a]", "WrongType"),
        ("restart: {}", "WrongType"),
        ("restart:", "WrongType"),
        ("tmpfs: []", "WrongType"),
        ("env:", "WrongType"),
    ],
)
def test_values_of_another_type(verdict: Callable[..., list[str]], line: str, code: str) -> None:
    assert verdict(line) == [f"containers[0].{line.split(':', maxsplit=1)[0]} {code}"]
