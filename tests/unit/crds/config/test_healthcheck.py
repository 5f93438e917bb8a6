"""Health checks and durations."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from cloister_crds.config import ContainerConfig, Healthcheck
from cloister_crds.config.syntax.scalars import read_duration

Verdict = Callable[..., list[str]]
Built = Callable[..., ContainerConfig]
FIELD = "containers[0].healthcheck"


@pytest.mark.spec("42.24", "43.2", "43.3", "43.4", "43.5")
def test_defaults(built: Built) -> None:
    assert built().healthcheck is None
    assert built("healthcheck: {test: [CMD, a]}").healthcheck == Healthcheck(
        test=("CMD", "a"),
        interval=timedelta(seconds=30),
        timeout=timedelta(seconds=30),
        retries=3,
        start_period=timedelta(0),
    )


@pytest.mark.spec("42.24")
def test_all_fields(built: Built) -> None:
    line = (
        "healthcheck: {test: [CMD-SHELL, curl x || exit 1], interval: 500ms, timeout: 1m30s, "
        "retries: 5, start_period: '90m'}"
    )
    assert built(line).healthcheck == Healthcheck(
        test=("CMD-SHELL", "curl x || exit 1"),
        interval=timedelta(milliseconds=500),
        timeout=timedelta(seconds=90),
        retries=5,
        start_period=timedelta(minutes=90),
    )


@pytest.mark.spec("43.1", "43.2", "43.3", "43.4", "43.5", "43.6")
def test_none_means_no_check(built: Built) -> None:
    health = built("healthcheck: {test: [NONE]}").healthcheck
    assert health is not None
    assert health.disabled


@pytest.mark.spec("43.1", "43.2", "43.3", "43.4", "43.5", "43.6")
@pytest.mark.parametrize(
    ("test", "code"),
    [
        ("curl x", "WrongType"),
        ("[]", "InvalidHealthcheck"),
        ("[curl, x]", "InvalidHealthcheck"),
        ("[CMD]", "InvalidHealthcheck"),
        ("[CMD-SHELL]", "InvalidHealthcheck"),
        ("[CMD-SHELL, curl, x]", "InvalidHealthcheck"),
        ("[NONE, x]", "InvalidHealthcheck"),
        ("[cmd, x]", "InvalidHealthcheck"),
    ],
)
def test_tests_that_are_refused(verdict: Verdict, test: str, code: str) -> None:
    assert verdict(f"healthcheck: {{test: {test}}}") == [f"{FIELD}.test {code}"]


@pytest.mark.spec("40.10")
def test_count_of_words(verdict: Verdict) -> None:
    assert verdict(f"healthcheck: {{test: [CMD{', a' * 63}]}}") == []
    assert verdict(f"healthcheck: {{test: [CMD{', a' * 64}]}}") == [f"{FIELD}.test TooManyEntries"]


@pytest.mark.spec("43.1", "43.2", "43.3", "43.4", "43.5", "43.6")
@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{}", ".test RequiredField"),
        ("{test: [CMD, a], intervall: 5s}", ".intervall UnknownField"),
        ("{test: [CMD, a], start_interval: 5s}", ".start_interval NotSupported"),
        ("{test: [CMD, a], disable: true}", ".disable NotSupported"),
        ("[CMD, a]", " WrongType"),
        ("{test: [CMD, a], interval: 0s}", ".interval OutOfRange"),
        ("{test: [CMD, a], interval: 999us}", ".interval OutOfRange"),
        ("{test: [CMD, a], timeout: 0}", ".timeout OutOfRange"),
        ("{test: [CMD, a], interval: 30}", ".interval InvalidDuration"),
        ("{test: [CMD, a], interval: 5 s}", ".interval InvalidDuration"),
        ("{test: [CMD, a], interval: 1d}", ".interval InvalidDuration"),
        ("{test: [CMD, a], start_period: -5s}", ".start_period InvalidDuration"),
        ("{test: [CMD, a], retries: -1}", ".retries OutOfRange"),
        ("{test: [CMD, a], retries: many}", ".retries WrongType"),
    ],
)
def test_fields_that_are_refused(verdict: Verdict, line: str, problem: str) -> None:
    assert verdict(f"healthcheck: {line}") == [f"{FIELD}{problem}"]


@pytest.mark.spec("43.1", "43.2", "43.3", "43.4", "43.5", "43.6")
def test_edges(built: Built) -> None:
    health = built(
        "healthcheck: {test: [CMD, a], interval: 1ms, timeout: 1ms, retries: 0, start_period: 0}"
    ).healthcheck
    assert health is not None
    assert health.interval == timedelta(milliseconds=1)
    assert health.retries == 3
    assert health.start_period == timedelta(0)


@pytest.mark.spec("43.1", "43.2", "43.3", "43.4", "43.5", "43.6")
@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90m", 5400),
        ("1h30m", 5400),
        ("500ms", 0.5),
        ("1.5s", 1.5),
        (".5s", 0.5),
        ("1.s", 1),
        ("2us3µs4μs", 0.000009),
        ("1000ns", 0.000001),
        ("0", 0),
        ("0s", 0),
        ("2562047h", 2562047 * 3600),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert read_duration(text) == timedelta(seconds=seconds)


@pytest.mark.spec("43.1", "43.2", "43.3", "43.4", "43.5", "43.6")
@pytest.mark.parametrize("text", ["", "s", "1", "1 s", "1S", "-1s", "+1s", "1e3s", "2562048h", "."])
def test_texts_that_are_no_duration(text: str) -> None:
    assert read_duration(text) is None
