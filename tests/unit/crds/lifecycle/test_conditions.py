"""Conditions keep their times, and equal findings change nothing."""

from datetime import timedelta

from cloister_crds.kinds.meta import ConditionStatus
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, condition, holds, merge
from tests.support.builders.resources import NOW

LATER = NOW + timedelta(minutes=3)
READY = ConditionUpdate("Ready", status=True, reason="Serving", message="well")
NOT_READY = ConditionUpdate("Ready", status=False, reason="Deploying")


def test_the_time_moves_with_the_status_only() -> None:
    first = merge((), [NOT_READY], generation=1, now=NOW)
    same_status = merge(
        first, [ConditionUpdate("Ready", status=False, reason="Starting")], generation=2, now=LATER
    )
    other = merge(same_status, [READY], generation=2, now=LATER)

    assert same_status[0].last_transition_time == NOW
    assert same_status[0].reason == "Starting"
    assert same_status[0].observed_generation == 2
    assert other[0].last_transition_time == LATER


def test_equal_findings_make_equal_conditions() -> None:
    first = merge((), [READY], generation=1, now=NOW)
    assert merge(first, [READY], generation=1, now=LATER) == first


def test_a_condition_without_finding_goes() -> None:
    first = merge(
        (), [NOT_READY, ConditionUpdate("Stalled", status=True, reason="X")], generation=1, now=NOW
    )
    second = merge(first, [READY], generation=1, now=LATER)
    assert [each.type for each in second] == ["Ready"]


def test_long_messages_are_cut_to_what_the_schema_takes() -> None:
    long = ConditionUpdate("Ready", status=False, reason="X", message="y" * 40_000)
    assert len(merge((), [long], generation=1, now=NOW)[0].message) == 32_768


def test_conditions_are_found_by_type() -> None:
    conditions = merge((), [READY], generation=1, now=NOW)
    found = condition(conditions, "Ready")
    assert found is not None
    assert found.status is ConditionStatus.TRUE
    assert condition(conditions, "Stalled") is None
    assert holds(conditions, "Ready")
    assert not holds(conditions, "Stalled")
