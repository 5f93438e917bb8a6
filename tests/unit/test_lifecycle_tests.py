"""The manual of the tests of each row of the lifecycle refers to existing tests."""

import pytest

from tests.support.documented_tests import missing_tests, named_tests, rows_of

ROWS = rows_of("docs/development/lifecycle-tests.md", "row", "killed during")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split(" | ")[0][2:60])
def test_every_row_names_tests_that_exist(row: str) -> None:
    _, _, *columns, _ = row.split("|")
    assert len(columns) == 2
    named = named_tests(columns[0])
    assert named, "no test sees this row"
    in_pods = named_tests(columns[1])
    assert in_pods or columns[1].strip() == "-"
    assert all(path.startswith("cluster/") for path, _ in in_pods)
    assert missing_tests(named + in_pods) == []


def test_the_manual_of_lifecycle_tests_has_its_rows() -> None:
    assert len(ROWS) > 30
