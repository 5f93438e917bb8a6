"""The table of our sidecars, and what the documentation has of it."""

import re
from pathlib import Path

from cloister_operator.enclave.sidecars import ORDER

MANUAL = Path(__file__).parents[4] / "docs" / "enclave.md"
ROW = re.compile(r"^\| \d+ \| `([a-z-]+)`[^|]*\| (\d+)[^|]*\|", re.MULTILINE)


def test_the_manual_for_auditors_lists_every_one_in_its_order_with_its_user() -> None:
    told = [(name, int(user)) for name, user in ROW.findall(MANUAL.read_text())]
    assert told == [(car.name, car.user) for car in ORDER]
