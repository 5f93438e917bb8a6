"""The limit of containers: the same result for everybody, and no later one displaces an earlier."""

from datetime import timedelta
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cloister_crds.kinds.container import Container, DesiredState
from cloister_crds.kinds.organization import Billing
from cloister_crds.lifecycle.admission.limits import Place, billing_of, counted, place_of, rank
from tests.support.builders.resources import NOW, container_of, organization_of

UNHURRIED = settings(deadline=None, derandomize=True)
"""Slow machines are not a failure, and a test is deterministic."""


def born(number: int, minutes: int, **fields: Any) -> Container:
    """Build a Container that was created at an offset in minutes from now."""
    made = container_of(f"c{number}", uid=f"u{number}", **fields)
    metadata = made.metadata.model_copy(
        update={"creation_timestamp": NOW + timedelta(minutes=minutes)}
    )
    return made.model_copy(update={"metadata": metadata})


def places_of(containers: list[Container]) -> list[Place]:
    """Return the places of those that are not being deleted."""
    return [
        place_of(each.metadata.creation_timestamp, each.metadata.uid)
        for each in containers
        if each.metadata.deletion_timestamp is None
    ]


def ranked(container: Container, containers: list[Container]) -> int | None:
    """Return the place of a Container with all Containers read."""
    return rank(container, places_of(containers), containers)


@UNHURRIED
@given(st.lists(st.integers(0, 3), max_size=8), st.randoms())
def test_every_container_has_one_place_whatever_the_order(
    minutes: list[int],
    random: Random,
) -> None:
    containers = [born(number, minute) for number, minute in enumerate(minutes)]
    shuffled = list(containers)
    random.shuffle(shuffled)
    places = [ranked(each, shuffled) for each in counted(shuffled)]
    assert places == list(range(len(containers)))
    assert counted(shuffled) == counted(containers)


@UNHURRIED
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 8)), max_size=8))
def test_places_alone_give_the_same_rank(made: list[tuple[int, bool, int]]) -> None:
    containers = [
        born(number, minute, deleted=deleted, replaces=f"c{heir}" if heir < number else None)
        for number, (minute, deleted, heir) in enumerate(made)
    ]
    tied = {each.spec.replaces for each in containers} | {
        each.metadata.name for each in containers if each.spec.replaces
    }
    related = [each for each in containers if each.metadata.name in tied]
    for each in containers:
        assert rank(each, places_of(containers), related) == ranked(each, containers)


def test_a_later_one_never_pushes_an_earlier_one_out() -> None:
    first, second, third = born(3, 0), born(2, 1), born(1, 2)
    assert [ranked(each, [third, first, second]) for each in (first, second, third)] == [0, 1, 2]


def test_stopped_ones_count() -> None:
    stopped, other = born(1, 0, state=DesiredState.STOPPED), born(2, 1)
    assert ranked(other, [stopped, other]) == 1


def test_one_that_is_taken_over_from_does_not_count() -> None:
    old, new = born(1, 0), born(2, 1, replaces="c1")
    assert ranked(old, [old, new]) is None
    assert ranked(new, [old, new]) == 0


def test_one_that_is_being_deleted_does_not_count() -> None:
    leaving, other = born(1, 0, deleted=True), born(2, 1)
    assert ranked(leaving, [leaving, other]) is None
    assert ranked(other, [leaving, other]) == 0


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
