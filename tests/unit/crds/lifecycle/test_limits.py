"""The limit of containers: the same result for everybody, and no later one displaces an earlier."""

from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister_crds.kinds.container import Container, ContainerStatus, DesiredState
from cloister_crds.kinds.enclave import EnclavePhase
from cloister_crds.kinds.meta import PAUSED_ANNOTATION
from cloister_crds.kinds.organization import Billing
from cloister_crds.lifecycle.admission.limits import (
    Place,
    PlaceOrder,
    billing_of,
    counted,
    may_have_pod,
    place_of,
    rank,
    running_places,
)
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, merge
from tests.support.builders.resources import NOW, container_of, enclave_of, organization_of

UNHURRIED = settings(deadline=None, derandomize=True)
"""Slow machines are not a failure, and a test is deterministic."""


def stalled(reason: str) -> ContainerStatus:
    """Build the status of a Container that is stalled."""
    update = ConditionUpdate("Stalled", status=True, reason=reason, message="It waits.")
    return ContainerStatus(conditions=merge((), [update], generation=1, now=NOW))


def born(number: int, minutes: int, **fields: Any) -> Container:
    """Build a Container that was created at an offset in minutes from now."""
    made = container_of(f"c{number}", uid=f"u{number}", **fields)
    metadata = made.metadata.model_copy(
        update={"creation_timestamp": NOW + timedelta(minutes=minutes)}
    )
    return made.model_copy(update={"metadata": metadata})


def places_of(containers: list[Container]) -> PlaceOrder:
    """Return the places of those that are not being deleted."""
    return PlaceOrder(
        place_of(each.metadata.creation_timestamp, each.metadata.uid)
        for each in containers
        if each.metadata.deletion_timestamp is None
    )


def place(container: Container) -> Place:
    """Return the place of a Container."""
    return place_of(container.metadata.creation_timestamp, container.metadata.uid)


def ranked(container: Container, containers: list[Container]) -> int | None:
    """Return the place of a Container with all Containers read."""
    return rank(container, places_of(containers), containers, {})


@UNHURRIED
@given(st.lists(st.integers(0, 3), max_size=8), st.randoms())
def test_every_container_has_one_place_whatever_the_order(
    minutes: list[int],
    random: Random,
) -> None:
    containers = [born(number, minute) for number, minute in enumerate(minutes)]
    shuffled = list(containers)
    random.shuffle(shuffled)
    by_uid = {each.metadata.uid: each for each in shuffled}
    places = [ranked(by_uid[uid], shuffled) for _, uid in counted(shuffled, {})]
    assert places == list(range(len(containers)))
    assert counted(shuffled, {}) == counted(containers, {})


@UNHURRIED
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 8)), max_size=8))
def test_places_alone_give_the_same_rank(
    made: list[tuple[int, bool, int]],
) -> None:
    containers = [
        born(number, minute, deleted=deleted, replaces=f"c{heir}" if heir < number else None)
        for number, (minute, deleted, heir) in enumerate(made)
    ]
    tied = {each.spec.replaces for each in containers} | {
        each.metadata.name for each in containers if each.spec.replaces
    }
    related = [each for each in containers if each.metadata.name in tied]
    for each in containers:
        assert rank(each, places_of(containers), related, {}) == ranked(each, containers)


@UNHURRIED
@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 8)), max_size=8),
    st.sets(st.integers(0, 9)),
)
def test_ranks_are_the_places_of_what_counts(
    made: list[tuple[int, bool, int]], with_pods: set[int]
) -> None:
    containers = [
        born(number, minute, deleted=deleted, replaces=f"c{heir}" if heir < number else None)
        for number, (minute, deleted, heir) in enumerate(made)
    ]
    running = {f"u{number}": place_of(NOW, f"u{number}") for number in with_pods}
    # The operator knows the place of a Container that exists by the Container.
    running |= {p[1]: p for p in map(place, containers) if p[1] in running}
    ranks = {
        each.metadata.uid: rank(each, places_of(containers), containers, running)
        for each in containers
    }
    for position, (_, uid) in enumerate(counted(containers, running)):
        assert ranks.pop(uid, position) == position
    assert set(ranks.values()) <= {None}


def test_a_later_one_never_pushes_an_earlier_one_out() -> None:
    first, second, third = born(3, 0), born(2, 1), born(1, 2)
    assert [ranked(each, [third, first, second]) for each in (first, second, third)] == [0, 1, 2]


@pytest.mark.spec("12.1")
def test_stopped_ones_count() -> None:
    stopped, other = born(1, 0, state=DesiredState.STOPPED), born(2, 1)
    assert ranked(other, [stopped, other]) == 1


@pytest.mark.spec("21.19")
def test_one_that_is_taken_over_from_does_not_count() -> None:
    old, new = born(1, 0), born(2, 1, replaces="c1")
    assert ranked(old, [old, new]) is None
    assert ranked(new, [old, new]) == 0


def runs(*containers: Container) -> dict[str, Place]:
    """Return what runs: an Enclave of each of these Containers has a Pod."""
    return {each.metadata.uid: place(each) for each in containers}


def test_one_that_is_handed_over_does_not_count_while_it_runs() -> None:
    old, new = born(1, 0), born(2, 1, replaces="c1")
    assert counted([old, new], runs(old, new)) == (place(new),)


def test_of_a_chain_of_replacements_one_alone_does_not_count() -> None:
    chain = [born(0, 0), *(born(each, each, replaces=f"c{each - 1}") for each in range(1, 5))]
    assert counted(chain, runs(*chain)) == tuple(map(place, [*chain[:3], chain[4]]))
    # Those that ended take no place.
    assert counted(chain, runs(*chain[3:])) == (place(chain[4]),)


@pytest.mark.parametrize(
    "waits",
    [
        {"state": DesiredState.STOPPED},
        {"annotations": {PAUSED_ANNOTATION: "true"}},
        {"status": stalled("HostnameTaken")},
    ],
)
def test_a_replacement_that_is_not_under_way_takes_nobody_out(waits: dict[str, Any]) -> None:
    old, new = born(1, 0), born(2, 1, replaces="c1", **waits)
    assert counted([old, new], runs(old)) == (place(old), place(new))


def test_a_replacement_that_waits_for_the_place_gets_it() -> None:
    old, new = born(1, 0), born(2, 1, replaces="c1", status=stalled("LimitReached"))
    assert counted([old, new], runs(old)) == (place(new),)


def test_one_that_is_being_deleted_counts_until_its_last_pod_is_gone() -> None:
    leaving, other = born(1, 0, deleted=True), born(2, 1)
    assert counted([leaving, other], runs(leaving)) == (place(leaving), place(other))
    assert rank(other, places_of([leaving, other]), [], runs(leaving)) == 1
    assert ranked(leaving, [leaving, other]) is None
    assert ranked(other, [leaving, other]) == 0


def test_one_that_is_gone_counts_until_its_last_pod_is_gone() -> None:
    other = born(2, 1)
    running = running_places([place_of(NOW, "u1"), place_of(NOW - timedelta(1), "u1")])
    assert running == {"u1": place_of(NOW - timedelta(1), "u1")}
    assert len(counted([other], running)) == 2
    assert rank(other, places_of([other]), [], running) == 1


@pytest.mark.parametrize(
    ("fields", "may"),
    [
        ({}, True),
        ({"phase": EnclavePhase.FAILED}, False),
        ({"deleting": True}, False),
        ({"deleting": True, "promoted": True}, True),
    ],
)
def test_an_enclave_tells_whether_it_may_have_a_pod(fields: dict[str, Any], *, may: bool) -> None:
    assert may_have_pod(enclave_of(container_of(), **fields)) is may


@pytest.mark.parametrize("uid", ["a", "z"])
def test_what_still_runs_is_before_who_waits_since_the_same_second(uid: str) -> None:
    waiting, running = born(1, 0), {uid: place_of(NOW, uid)}
    assert place(waiting)[0] == NOW
    assert rank(waiting, places_of([waiting]), [], running) == 1
    assert [each for _, each in counted([waiting], running)] == [uid, "u1"]


def test_one_that_is_not_listed_yet_has_its_place_already() -> None:
    assert ranked(born(2, 1), [born(1, 0)]) == 1


def test_billing_is_what_the_processor_says_where_there_is_one() -> None:
    told = Billing(container_subscription=True, customer_id="cus_1")
    plain = organization_of(subscribed=False)
    with_processor = organization_of(billing=Billing(customer_id="cus_1"))
    assert not billing_of(plain).container_subscription
    assert not billing_of(with_processor).container_subscription
    with_another = organization_of(billing=Billing(customer_id="cus_2"))
    for organization, want in ((plain, False), (with_processor, True), (with_another, False)):
        status = organization.status.model_copy(update={"billing": told})
        heard = organization.model_copy(update={"status": status})
        assert billing_of(heard).container_subscription is want
