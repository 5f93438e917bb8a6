"""The rules that are published, and the places that name their digest."""

import json
from pathlib import Path

import pytest

from cloister_crds.measurement.initdata import (
    PUBLISHED_RULES,
    pod_of,
    pod_text,
    policy_text,
    rules_digest,
    rules_text,
)

ROOT = Path(__file__).parents[4]
LONGEST_LINE = 1024
"""Columns that regorus reads by default."""


def test_the_rules_are_published() -> None:
    assert set(PUBLISHED_RULES) == {rules_digest()}


@pytest.mark.parametrize(
    "place", ["docs/measurement.md", "operator/guest/internal/client/verify/rules.go"]
)
def test_clients_know_the_published_rules(place: str) -> None:
    text = (ROOT / place).read_text()
    assert text.count(rules_digest()) == 1


def test_the_policy_is_one_module() -> None:
    policy = policy_text(pod_text({"containers": [{"args": ["é", "$x"]}], "sandbox": {}}))
    assert policy.startswith(rules_text())
    assert [line for line in policy.splitlines() if line.startswith(("package", "import"))] == [
        "package agent_policy",
        "import future.keywords.every",
        "import future.keywords.if",
        "import future.keywords.in",
    ]
    assert policy.endswith('\ncloister_pod := {"containers":[{"args":["é","$x"]}],"sandbox":{}}\n')
    assert pod_of(policy) == pod_text({"containers": [{"args": ["é", "$x"]}], "sandbox": {}})
    assert max(map(len, policy.splitlines())) < LONGEST_LINE


def test_a_long_description_has_a_line_for_each_part() -> None:
    data = {"b": ["x" * 300, "y" * 300], "a": {"z": 1, "c": [{}, []]}, "d": [{"e": "w" * 500}]}
    text = pod_text(data)
    assert json.loads(text) == data
    assert text.splitlines() == [
        "{",
        '"a":{"c":[{},[]],"z":1},',
        '"b":[',
        f'"{"x" * 300}",',
        f'"{"y" * 300}"',
        "],",
        '"d":[',
        "{",
        f'"e":"{"w" * 500}"',
        "}",
        "]",
        "}",
    ]


def test_a_policy_without_a_pod_describes_none() -> None:
    assert pod_of("package agent_policy\n") == ""
