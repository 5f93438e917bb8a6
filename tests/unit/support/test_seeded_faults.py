"""Each seeded fault still changes the operator; the documented table names all of them."""

from pathlib import Path

import pytest

from tests.simulation.seeded import SEEDED, Seeded, table

DOCUMENT = Path(__file__).parents[3] / "docs" / "development" / "simulation.md"


@pytest.mark.parametrize("fault", SEEDED, ids=lambda fault: fault.name)
def test_a_seeded_fault_changes_one_function(fault: Seeded) -> None:
    assert len(fault.changes()) == 1


def test_the_documentation_has_the_table_that_the_command_prints() -> None:
    assert table() in DOCUMENT.read_text(encoding="utf-8")
