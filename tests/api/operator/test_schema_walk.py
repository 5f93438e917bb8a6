"""Every field of a Container's spec through valid values, invalid ones and back.

The fields come from the CRD, so that a new one is walked, or fails the test that has no values for
it. In the end a Container must be as one that was made with its spec: its status, and all that the
operator made for it. A failure on the way must leave no trace either.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.cluster import Cluster
from tests.support.builders.schema_values import spec_schema
from tests.support.faults.crashing_operators import proxied_installation
from tests.support.lifecycles.end_states import differences, guards_of
from tests.support.lifecycles.spec_walks import SpecWalk
from tests.support.lifecycles.steps import ContainerLifecycles, condition

pytestmark = pytest.mark.timeout(600)
FAIL_FIRST = {"tag", "commit", "secrets", "sshKeys", "host", "gpus"}
"""Fields whose first value cannot be satisfied, and whose second one can."""


@pytest.fixture
def walk(api_cluster: Cluster, tmp_path: Path, image_of_life: str) -> Iterator[SpecWalk]:
    with proxied_installation(api_cluster, tmp_path, {"gateway": {"name": "public"}}) as place:
        found = SpecWalk(
            ContainerLifecycles(place.installation, place.proxy, place.direct, image_of_life)
        )
        found.prepare()
        place.operator("only").wait_until_it_leads()
        yield found
        found.end()


def serving(walk: SpecWalk) -> set[str]:
    """Return the Containers that serve their spec."""
    return {
        name for name, each in walk.containers().items() if condition(each, "Ready") == "Serving"
    }


def assert_same(found: dict[str, Any], wanted: dict[str, Any], what: str) -> None:
    different = differences(found, wanted)
    assert not different, f"{what}: {different}"


def create(walk: SpecWalk, twins: dict[str, str]) -> None:
    """Create all Containers, immutable fields with their first value from the beginning."""
    walk.create("fresh")
    for name, field in walk.names.items():
        walk.create(name, field if field.immutable else None)
    for name, twin in twins.items():
        if twin != "fresh":
            walk.create(twin, walk.names[name], 1)
    walk.await_settled()


def set_first(walk: SpecWalk) -> None:
    """Set each field to its first value, which some Containers cannot reach."""
    for name, field in walk.names.items():
        answer = walk.set(name, 0)
        assert answer.is_success, f"{field.text}: {answer.text}"
    walk.await_settled()
    unmoved = {walk.names[name].text for name in serving(walk) & walk.names.keys()} & FAIL_FIRST
    assert not unmoved, unmoved


def set_second(walk: SpecWalk) -> None:
    """Set each field to its second value; changes of immutable fields are refused."""
    for name, field in walk.names.items():
        answer = walk.set(name, 1)
        assert answer.is_success != field.immutable, f"{field.text}: {answer.text}"
        assert not field.immutable or f"{field.text} cannot be changed" in answer.text
    walk.await_settled()


def refuse(walk: SpecWalk) -> None:
    """Set each field to invalid values: every refusal names it, and nothing changes."""
    specs = {name: each["spec"] for name, each in walk.containers().items()}
    states = walk.states(walk.names)
    for name in walk.names:
        for place, answer in walk.refused(name):
            assert answer.status_code in {400, 422}, f"{place}: {answer.text}"
            assert place in answer.text, answer.text
    walk.await_settled()
    assert {name: each["spec"] for name, each in walk.containers().items()} == specs
    for name, after in walk.states(walk.names).items():
        assert_same(after, states[name], f"{walk.names[name].text} after what was refused")


def test_every_field_of_a_container(walk: SpecWalk) -> None:
    walked = {field.path[0] for field in walk.names.values()}
    assert walked == spec_schema("containers")["properties"].keys()
    # One whose second value is the first spec again has its twin in the one that is left alone.
    twins = {name: walk.twin(name) for name, each in walk.names.items() if not each.immutable}
    create(walk, twins)
    guards = guards_of(walk.lifecycles.direct, walk.lifecycles.namespace)
    assert all(guards.values())

    set_first(walk)
    set_second(walk)
    compared = serving(walk) & twins.keys()
    assert {walk.names[name].text for name in compared} >= FAIL_FIRST
    states = walk.states({*compared, *(twins[name] for name in compared)})
    for name in compared:
        assert_same(states[name], states[twins[name]], walk.names[name].text)
    refuse(walk)

    for name in twins:
        walk.put_back(name)
    walk.await_settled()
    states = walk.states({"fresh", *twins})
    for name in twins:
        assert_same(states[name], states["fresh"], f"{walk.names[name].text} and back")
    assert guards_of(walk.lifecycles.direct, walk.lifecycles.namespace) == guards
