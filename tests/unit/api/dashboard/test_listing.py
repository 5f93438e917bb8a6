"""Which containers a page of the list shows."""

from typing import Any

import pytest

from cloister_api.cache import CachedContainer
from cloister_api.dashboard.views.listing import (
    PAGE,
    Choice,
    ContainerListing,
    ListedContainers,
    listing_of,
)
from cloister_crds.kinds import Container
from cloister_crds.kinds.container import ContainerPhase


def held(name: str, phase: str = "ready", **spec: Any) -> CachedContainer:
    item = {
        "metadata": {
            "name": name, "namespace": "org-a", "uid": f"uid-{name}", "generation": 1,
            "creationTimestamp": "2026-11-27T00:00:00Z", "resourceVersion": "1",
        },
        "spec": {"repo": "acme/web", "tag": "v1", **spec},
        "status": {"phase": phase, "observedGeneration": 1},
    }  # fmt: skip
    return CachedContainer(Container.read(item), "", {})


def listed_of(containers: list[CachedContainer], choice: Choice) -> ContainerListing:
    return listing_of(ListedContainers().of(containers), choice)


def names(containers: list[CachedContainer], choice: Choice) -> list[str]:
    return [each.container.display_name for each in listed_of(containers, choice).held]


MIXED = [
    held("a", "stopped"), held("b"), held("c", "deploying"), held("d", "failed", tag="v2"),
    held("e", "failed", repo="acme/Shop"),
]  # fmt: skip


def test_the_most_urgent_come_first_and_all_are_counted() -> None:
    listing = listed_of(MIXED, Choice())
    assert [each.id for each in listing.held] == ["uid-d", "uid-e", "uid-c", "uid-b", "uid-a"]
    assert listing.counts == (
        (ContainerPhase.FAILED, 2),
        (ContainerPhase.DEPLOYING, 1),
        (ContainerPhase.READY, 1),
        (ContainerPhase.STOPPED, 1),
    )


@pytest.mark.parametrize(
    ("choice", "found"),
    [
        (Choice(status="failed"), ["d", "e"]),
        (Choice(text="SHOP"), ["e"]),
        (Choice(text="v2"), ["d"]),
        (Choice(text="web"), ["c", "b", "a", "d"]),
        (Choice(status="failed", text="v2"), ["d"]),
        (Choice(status="nonsense"), []),
    ],
)
def test_a_choice_is_kept_to(choice: Choice, found: list[str]) -> None:
    assert set(names(MIXED, choice)) == set(found)


def test_pages_have_fifty_and_the_last_one_the_rest() -> None:
    many = [held(f"c{number:03}") for number in range(PAGE * 2 + 3)]
    first, last, beyond = (listed_of(many, Choice(number=number)) for number in (1, 3, 99))
    assert len(first.held) == PAGE
    assert first.held[0].id == "uid-c000"
    assert (len(last.held), last.pages, last.number) == (3, 3, 3)
    assert beyond == last
    assert listed_of([], Choice(number=5)).pages == 1


@pytest.mark.parametrize(
    ("text", "number"), [("", 1), ("0", 1), ("-1", 1), ("x", 1), ("7", 7), ("9" * 30, 1)]
)
def test_a_page_that_cannot_be_is_the_first(text: str, number: int) -> None:
    assert Choice.of({"page": text}).number == number


def test_what_is_kept_of_a_container_goes_with_its_object() -> None:
    listed = ListedContainers()
    (first,) = listed.of([held("a")])
    same = first.held
    assert listed.of([same]) == [first]
    (changed,) = listed.of([held("a", "failed")])
    assert (first.phase, changed.phase) == (ContainerPhase.READY, ContainerPhase.FAILED)


def test_a_line_end_is_not_in_any_text() -> None:
    assert not names([held("a", tag="b")], Choice(text="b\na"))
    assert names([held("a", tag="b")], Choice(text="acme/web")) == ["a"]
