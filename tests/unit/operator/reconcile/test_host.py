"""What Hosts say where several of them are the default."""

import pytest

from cloister_operator.reconcile.host import default_conditions


@pytest.mark.parametrize(
    ("name", "defaults", "counts"),
    [
        ("a", [], None),
        ("a", ["a"], None),
        ("c", ["b", "a"], None),
        ("a", ["b", "a"], True),
        ("b", ["b", "a"], False),
    ],
)
def test_the_first_by_name_counts_and_all_say_so(
    name: str, defaults: list[str], *, counts: bool | None
) -> None:
    found = default_conditions(name, defaults)
    assert [each.status for each in found] == ([] if counts is None else [counts])
    for each in found:
        assert (each.type, each.reason) == ("Default", "SeveralDefaults")
        assert each.message.startswith("a, b set spec.default; a counts")
