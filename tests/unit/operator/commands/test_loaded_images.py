"""Images that every node has already."""

from typing import Any

import pytest

from cloister_clients.findings import FindingLevel, failed, passed
from cloister_operator.commands.checks import unless_loaded

IMAGE = f"localhost/cloister/cloister-guest@sha256:{'0' * 64}"
OTHER = f"localhost/cloister/cloister-guest@sha256:{'1' * 64}"
REFUSED = failed("guestImage", "RegistryRefused: it is not called", "correct guestImage")


def node(*names: str) -> dict[str, Any]:
    """Return a node that reports images."""
    return {"status": {"images": [{"names": ["localhost/other:1"]}, {"names": list(names)}]}}


@pytest.mark.parametrize(
    ("nodes", "level"),
    [
        ([node(IMAGE)], FindingLevel.WARN),
        ([node(OTHER, IMAGE), node(IMAGE)], FindingLevel.WARN),
        ([node(IMAGE), node(OTHER)], FindingLevel.FAIL),
        ([node(IMAGE), {}], FindingLevel.FAIL),
        ([{"status": {"images": [{}]}}], FindingLevel.FAIL),
        ([], FindingLevel.FAIL),
    ],
)
def test_a_registry_is_not_needed_for_what_every_node_has(
    nodes: list[dict[str, Any]], level: FindingLevel
) -> None:
    found = unless_loaded(REFUSED, IMAGE, nodes)
    assert found.level is level
    assert REFUSED.message in found.message
    if level is FindingLevel.FAIL:
        assert found == REFUSED
    else:
        assert "every node has it" in found.message
        assert "load it on every node that joins" in found.remedy


def test_what_a_registry_has_is_not_changed() -> None:
    found = passed("guestImage", "it is there")
    assert unless_loaded(found, IMAGE, [node(IMAGE)]) == found
