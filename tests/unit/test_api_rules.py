"""The manual of the tests of each rule of the Admin API refers to existing tests."""

import pytest

from tests.support.documented_tests import missing_tests, named_tests, rows_of

ROWS = rows_of("docs/development/api-rules.md", "rule", "state")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split(" | ")[0][2:60])
def test_every_rule_names_tests_that_exist(row: str) -> None:
    named = named_tests(row)
    assert named, "no test sees this rule"
    assert missing_tests(named) == []
    rest = row
    for path, name in named:
        rest = rest.replace(f"`{path}::{name}`", "")
    assert "::" not in rest, "a test is named in another form"


def test_the_manual_of_api_rules_has_each_row_once() -> None:
    assert len(ROWS) > 150
    rules = [row.split("|")[1].strip() for row in ROWS]
    assert sorted({rule for rule in rules if rules.count(rule) > 1}) == []


def test_a_missing_test_is_found() -> None:
    named = named_tests("`unit/test_api_rules.py::test_gone`, `unit/none.py::test_a`")
    named += named_tests("`gate_test.go::TestGone`, `ssh_test.go::TestTerminal`")
    assert missing_tests(named) == [
        "unit/test_api_rules.py::test_gone",
        "unit/none.py::test_a",
        "gate_test.go::TestGone",
    ]
