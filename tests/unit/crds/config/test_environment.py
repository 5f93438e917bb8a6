"""Variables and secrets."""

from collections.abc import Callable

import pytest

from cloister_crds.config import (
    ContainerConfig,
    EnvEntry,
    ParsedConfig,
    Rules,
    secret_is_file,
    variable_problems,
)

Verdict = Callable[..., list[str]]
Built = Callable[..., ContainerConfig]


@pytest.mark.spec("42.7", "42.29")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ('""', ""),
        ("'on'", "on"),
        ("true", "true"),
        ("17", "17"),
        ("-3", "-3"),
        ("0.25", "0.25"),
        ("2026-11-22", "2026-11-22"),
        ("'{\"a\": 1}'", '{"a": 1}'),
    ],
)
def test_values(built: Built, value: str, text: str) -> None:
    assert built(f"env: [{{NAME: {value}}}]").env == (EnvEntry(name="NAME", value=text),)


@pytest.mark.spec("42.7", "42.29")
def test_bare_names(built: Built) -> None:
    assert built("env: [DOMAIN, _a1]").env == (EnvEntry(name="DOMAIN"), EnvEntry(name="_a1"))


@pytest.mark.spec("42.7", "42.29")
@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("NAME=value", "env[0] InvalidEnv"),
        ("'NAME='", "env[0] InvalidEnv"),
        ("1A", "env[0] InvalidName"),
        ("A-B", "env[0] InvalidName"),
        ("{A.B: c}", 'env[0]["A.B"] InvalidName'),
        ("{A: b, C: d}", "env[0] InvalidEnv"),
        ("{}", "env[0] InvalidEnv"),
        ("[A]", "env[0] WrongType"),
        ("{A: }", "env[0].A WrongType"),
        ("{A: null}", "env[0].A WrongType"),
        ("{A: [b]}", "env[0].A WrongType"),
        ("{A: {b: c}}", "env[0].A WrongType"),
        ("{A: yes}", "env[0].A AmbiguousScalar"),
        ("5", "env[0] WrongType"),
    ],
)
def test_entries_that_are_refused(verdict: Verdict, entry: str, problem: str) -> None:
    assert verdict(f"env: [{entry}]") == [f"containers[0].{problem}"]


@pytest.mark.spec("42.7", "42.29")
def test_an_equals_sign_gets_advice(judged: Callable[..., ParsedConfig]) -> None:
    (problem,) = judged("env: ['A=x=\"y\"']").problems
    assert '`- A: "x=\\"y\\""`' in problem.message


def test_a_map_gets_advice(judged: Callable[..., ParsedConfig]) -> None:
    (problem,) = judged("env: {A: b}").problems
    assert (problem.field, problem.code) == ("containers[0].env", "WrongType")
    assert "- NAME: value" in problem.message


def test_a_name_is_once(verdict: Verdict) -> None:
    assert verdict("env: [A, {A: b}]") == ["containers[0].env[1] DuplicateName"]
    assert verdict("secrets: [A, A]") == ["containers[0].secrets[1] DuplicateEntry?"]
    assert verdict("env: [{A: b}]\nsecrets: [A]") == ["containers[0].env DuplicateName"]


@pytest.mark.spec("40.11")
@pytest.mark.parametrize("key", ["env", "secrets"])
def test_length_of_names(verdict: Verdict, key: str) -> None:
    assert verdict(f"{key}: [{'A' * 256}]") == []
    assert verdict(f"{key}: [{'A' * 257}]") == [f"containers[0].{key}[0] NameTooLong"]


@pytest.mark.spec("42.8", "42.31")
def test_secrets(built: Built) -> None:
    names = ("API_KEY", "tls-key", "lower", "9-lives", "_x")
    assert built(f"secrets: [{', '.join(names)}]").secrets == names
    assert [secret_is_file(name) for name in names] == [False, True, False, True, False]


@pytest.mark.parametrize("name", ["METRICS_KEY", "metrics-token", "ENCLAVE_METRICS_API_TOKEN"])
def test_a_name_like_that_of_the_metrics_secret_has_no_effect(verdict: Verdict, name: str) -> None:
    assert verdict(f"secrets: [{name}]") == ["containers[0].secrets[0] NoEffect?"]


@pytest.mark.spec("42.8", "42.31")
def test_the_metrics_secret_is_a_secret_and_no_variable(verdict: Verdict) -> None:
    for name in ("METRICS_TOKEN", "METRICS_API_KEY"):
        assert verdict(f"secrets: [{name}]") == []
        assert verdict(f"env: [{name}]") == ["containers[0].env[0] NoEffect?"]
    for name in ("METRICS_PORT", "API_KEY", "metrics-port", "TOKEN"):
        assert verdict(f"secrets: [{name}]") == []


@pytest.mark.spec("42.8", "42.31")
@pytest.mark.parametrize("name", ["a b", "a--b", "-a", "a-", "A-B", "a.b", "''", "ä"])
def test_secrets_that_are_refused(verdict: Verdict, name: str) -> None:
    assert verdict(f"secrets: [{name}]") == ["containers[0].secrets[0] InvalidName"]


@pytest.mark.spec("42.7", "42.29", "42.30")
def test_variables_are_compared_when_they_are_known(judged: Callable[..., ParsedConfig]) -> None:
    line = "env: [DOMAIN, GIVEN, UNSET, {FIXED: a}]"
    assert judged(line).problems == ()
    rules = Rules(variables={"GIVEN": "1", "FIXED": "b", "OTHER": "c"})
    parsed = judged(line, rules=rules)
    assert parsed.valid
    assert {(one.field, one.code, one.line) for one in parsed.warnings} == {
        ("containers[0].env[2]", "VariableUnset", 9),
        ("variables.FIXED", "VariableUnused", None),
        ("variables.OTHER", "VariableUnused", None),
    }


@pytest.mark.spec("42.7", "42.29")
def test_a_value_of_the_file_is_never_overridden(judged: Callable[..., ParsedConfig]) -> None:
    parsed = judged("env: [{A: file}]", rules=Rules(variables={"A": "deploy"}))
    assert parsed.config is not None
    assert parsed.config.containers[0].env == (EnvEntry(name="A", value="file"),)
    assert variable_problems(parsed.config, {}) == ()
