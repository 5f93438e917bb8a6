"""Bodies in the manual's tables of calls follow from the models of the requests."""

import pytest

from dev.house.manual import BodyTableError, with_bodies
from tests.support.clients.openapi_check import described

PAGE = """\
| call | body | response |
|---|---|---|
| `POST /api/secrets` | anything | the record |
| `POST …/:id/stop` | nothing yet | the record |
| `GET …/:id/metrics` | query `time` | points |
| `POST /api/billing/usage/key?time=` | | sums |

| other | table |
|---|---|
| `POST /api/secrets` | stays |
"""


def test_every_field_of_a_body_is_in_its_row_the_required_ones_first() -> None:
    lines = with_bodies(PAGE, described()).splitlines()
    assert lines[2:6] == [
        "| `POST /api/secrets` | `name`, `value`; optional `repo` | the record |",
        "| `POST …/:id/stop` | | the record |",
        "| `GET …/:id/metrics` | query `time` | points |",
        "| `POST /api/billing/usage/key?time=` | `key` | sums |",
    ]
    assert lines[-1] == "| `POST /api/secrets` | stays |"
    assert with_bodies("\n".join(lines) + "\n", described()).splitlines() == lines


@pytest.mark.parametrize("call", ["POST /api/dragons", "POST …/:id", "PATCH /api/secrets"])
def test_a_call_that_is_not_one_operation_is_refused(call: str) -> None:
    page = f"| call | body | response |\n|---|---|---|\n| `{call}` | | |\n"
    with pytest.raises(BodyTableError, match="operations of the API"):
        with_bodies(page, described())
