"""Which containers a page of the list shows."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloister_api.cache import CachedContainer
from cloister_api.dashboard.listing import PAGE, Choice, ContainerPage, OrderedContainers
from cloister_api.records.container import replacement_links
from cloister_crds.kinds import Container
from cloister_crds.kinds.container import ContainerPhase

FIRST = Choice()


def held(name: str, phase: str = "ready", uid: str = "", **spec: Any) -> CachedContainer:
    item = {
        "metadata": {
            "name": name, "namespace": "org-a", "uid": uid or f"uid-{name}", "generation": 1,
            "creationTimestamp": "2026-11-27T00:00:00Z", "resourceVersion": "1",
        },
        "spec": {"repo": "acme/web", "tag": "v1", **spec},
        "status": {"phase": phase, "observedGeneration": 1},
    }  # fmt: skip
    return CachedContainer(Container.read(item), "", {})


def page_of(containers: OrderedContainers, choice: Choice = FIRST) -> ContainerPage:
    return containers.page(choice, containers.links())


def names(containers: list[CachedContainer], choice: Choice) -> list[str]:
    return [
        each.container.display_name for each in page_of(OrderedContainers(containers), choice).held
    ]


MIXED = [
    held("a", "stopped"), held("b"), held("c", "deploying"), held("d", "failed", tag="v2"),
    held("e", "failed", repo="acme/Shop"),
]  # fmt: skip


def test_the_most_urgent_come_first_and_all_are_counted() -> None:
    listing = page_of(OrderedContainers(MIXED))
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
    listed = OrderedContainers(many)
    first, last, beyond = (page_of(listed, Choice(number=number)) for number in (1, 3, 99))
    assert len(first.held) == PAGE
    assert first.held[0].id == "uid-c000"
    assert (len(last.held), last.pages, last.number) == (3, 3, 3)
    assert beyond == last
    assert page_of(OrderedContainers(), Choice(number=5)).pages == 1


@pytest.mark.parametrize(
    ("text", "number"), [("", 1), ("0", 1), ("-1", 1), ("x", 1), ("7", 7), ("9" * 30, 1)]
)
def test_a_page_that_cannot_be_is_the_first(text: str, number: int) -> None:
    assert Choice.of({"page": text}).number == number


def test_a_container_that_another_one_replaces_is_neither_listed_nor_counted() -> None:
    old, new = held("a"), held("b", "deploying", replaces="a")
    listed = OrderedContainers([old, new, held("c")])
    page = page_of(listed)
    assert [each.id for each in page.held] == ["uid-b", "uid-c"]
    assert page.counts == ((ContainerPhase.DEPLOYING, 1), (ContainerPhase.READY, 1))
    assert (page.total, page.found) == (2, 2)
    links = listed.links()
    assert (links["uid-a"].replaced_by, links["uid-b"].replaces) == ("uid-b", "uid-a")
    listed.drop(old)
    assert listed.links() == {}
    listed.put(old)
    listed.drop(new)
    assert page_of(listed).total == 2, "it is listed again"


def test_what_has_a_name_by_now_stays_when_its_predecessor_is_gone() -> None:
    old, new = held("a", "stopped", uid="1"), held("a", uid="2")
    listed = OrderedContainers([old])
    listed.put(new)
    listed.drop(old)
    assert page_of(listed).held == (new,)
    assert page_of(listed).counts == ((ContainerPhase.READY, 1),)


NAMES = st.sampled_from("abcdef")
PHASES = st.sampled_from(list(ContainerPhase))
REPLACED = st.none() | NAMES


@given(st.lists(st.tuples(st.booleans(), NAMES, PHASES, REPLACED), max_size=40))
def test_a_list_that_is_kept_current_is_the_list_that_is_made(
    changes: list[tuple[bool, str, ContainerPhase, str | None]],
) -> None:
    kept, now = OrderedContainers(), dict[str, CachedContainer]()
    for stays, name, phase, replaces in changes:
        if stays:
            other = replaces if replaces != name else None
            now[name] = held(name, phase.value, replaces=other)
            kept.put(now[name])
        elif name in now:
            kept.drop(now.pop(name))
        made = OrderedContainers(now.values())
        assert kept.links() == replacement_links(list(now.values())) == made.links()
        assert page_of(kept) == page_of(made)
        assert len(kept) == len(now)


def test_a_line_end_is_not_in_any_text() -> None:
    assert not names([held("a", tag="b")], Choice(text="b\na"))
    assert names([held("a", tag="b")], Choice(text="acme/web")) == ["a"]
