"""The table of reasons and its page in the manual are equal."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from cloister_crds.backoff import backoff_delay
from cloister_crds.kinds.host import NetworkIsolation
from cloister_crds.lifecycle.admission.validation import RequestFacts, validate_for_organization
from cloister_crds.lifecycle.state.reasons import (
    REASONS,
    Reason,
    ReasonKind,
    is_final,
    is_transient,
    reason_for,
)
from tests.support.builders.resources import (
    CONFIDENTIAL,
    container_of,
    file_of,
    host_of,
    organization_of,
    release_of,
)

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "reasons.md"
HEADINGS = {
    ReasonKind.STATE: "## States",
    ReasonKind.TRANSIENT: "## Transient reasons",
    ReasonKind.TERMINAL: "## Terminal reasons",
}


def row(reason: Reason) -> str:
    """Write the line of the page."""
    remedy = reason.remedy or "Nothing."
    mark = " *" if reason.event else ""
    if reason.kind is not ReasonKind.TERMINAL:
        return f"| `{reason.word}`{mark} | {reason.meaning} | {remedy} |"
    again = "a new request" if reason.final else "every minute" if reason.recheck else "a change"
    return f"| `{reason.word}` | {reason.meaning} | {remedy} | {again} |"


@pytest.mark.parametrize("reason", REASONS.values(), ids=lambda reason: reason.word)
def test_every_reason_stands_in_the_manual(reason: Reason) -> None:
    section = PAGE.read_text().split(HEADINGS[reason.kind])[1].split("\n## ")[0]
    assert row(reason) in section.splitlines()


def test_the_manual_has_no_reason_that_does_not_exist() -> None:
    words = re.findall(r"^\| `(\w+)`(?: \*)? \|", PAGE.read_text(), flags=re.MULTILINE)
    assert sorted(words) == sorted(REASONS)


@pytest.mark.parametrize("reason", REASONS.values(), ids=lambda reason: reason.word)
def test_reasons_are_words_that_conditions_take(reason: Reason) -> None:
    assert re.fullmatch(r"[A-Z][A-Za-z]+", reason.word)
    assert reason.meaning.endswith(".")
    assert reason.kind is ReasonKind.STATE or reason.remedy.endswith(".")
    assert not (reason.final and reason.recheck)


def words_in(folder: str, pattern: str) -> set[str]:
    """Return what a pattern finds in the sources of a folder."""
    texts = (path.read_text() for path in (ROOT / folder).rglob("*.py"))
    return {word for text in texts for word in re.findall(pattern, text, flags=re.MULTILINE)}


def test_every_reason_of_the_clients_is_known() -> None:
    words = words_in("crds/cloister_clients", r'^    reason(?:: ClassVar\[str\])? = "(\w+)"')
    assert "TagNotFound" in words
    assert words - {"SourceError", "RegistryError"} <= set(REASONS)


def test_every_reason_of_the_operator_is_known() -> None:
    words = words_in("operator", r'(?:reason=|"Ready", (?:True|False), |Failed\()"([A-Z]\w+)"')
    assert "NamespaceReady" in words
    assert words <= set(REASONS)


def test_codes_of_the_file_mean_an_invalid_file() -> None:
    assert reason_for("UnknownField").word == "InvalidConfig"
    assert reason_for("TagNotFound").word == "TagNotFound"


def test_codes_of_the_organization_checks_are_reasons() -> None:
    question = RequestFacts(
        name="-bad-",
        spec=container_of(host="gone", secrets=("NOPE",), replaces="old").spec,
        organization=organization_of(subscribed=False),
        hosts=(host_of("tee", **CONFIDENTIAL, network_isolation=NetworkIsolation.CONTAINER),),
        rank=10,
        release=release_of(file_of(cpus=3)),
    )
    problems = validate_for_organization(question)
    warnings = {"UnusedSecret", "UnusedVariable", "VariableUnset"}
    codes = {each.code for each in problems} - warnings
    assert len(codes) >= 6
    assert codes <= set(REASONS)


def test_kinds_are_told_apart() -> None:
    assert is_transient("PodLost")
    assert not is_transient("BootFailed")
    assert not is_transient("Serving")
    assert is_final("BootFailed")
    assert not is_final("HostnameTaken")


@pytest.mark.parametrize(
    ("failures", "seconds"), [(0, 0), (1, 10), (2, 20), (3, 40), (5, 160), (6, 300), (1000, 300)]
)
def test_waits_grow_from_ten_seconds_to_five_minutes(failures: int, seconds: int) -> None:
    assert backoff_delay(failures) == timedelta(seconds=seconds)
