"""Which containers a page of the list shows."""

from typing import Any

import pytest

from cloister_api.cache import CachedContainer
from cloister_api.dashboard.listing import PAGE, Choice, ContainerPage, page_of
from cloister_api.dashboard.rows import Situation
from cloister_api.records.container import replacement_links
from cloister_crds.kinds import Container

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


def shown(containers: list[CachedContainer], choice: Choice = FIRST) -> ContainerPage:
    return page_of(containers, replacement_links(containers), choice)


def names(containers: list[CachedContainer], choice: Choice) -> list[str]:
    return [each.container.display_name for each in shown(containers, choice).held]


MIXED = [
    held("a", "stopped"), held("b"), held("c", "deploying"), held("d", "failed", tag="v2"),
    held("e", "failed", repo="acme/Shop"),
]  # fmt: skip


def test_the_most_urgent_come_first_and_all_are_counted() -> None:
    listing = shown(MIXED)
    assert [each.id for each in listing.held] == ["uid-d", "uid-e", "uid-c", "uid-b", "uid-a"]
    assert listing.counts == (
        (Situation.FAILED, 2),
        (Situation.PROGRESS, 1),
        (Situation.RUNNING, 1),
        (Situation.STOPPED, 1),
    )


def test_failed_and_waiting_updates_come_before_what_is_fine() -> None:
    def updating(name: str, status: str) -> CachedContainer:
        item = held(name)
        update = {"enclave": "e", "revision": "b", "tag": "v2", "status": status}
        reported = {"phase": "ready", "observedGeneration": 1, "update": update}
        raw = {**item.container.wire(), "status": reported}
        return CachedContainer(Container.read(raw), "", {})

    containers = [
        held("a"), updating("b", "started"), updating("c", "ready"), updating("d", "failed"),
    ]  # fmt: skip
    listing = shown(containers)
    assert [each.id for each in listing.held] == ["uid-d", "uid-c", "uid-b", "uid-a"]
    assert names(containers, Choice(status="failed")) == ["d"]
    assert names(containers, Choice(status="review")) == ["c"]
    assert names(containers, Choice(status="in-progress")) == ["b"]
    assert set(names(containers, Choice(status="ready"))) == {"a", "b", "c", "d"}


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
    first, last, beyond = (shown(many, Choice(number=number)) for number in (1, 3, 99))
    assert len(first.held) == PAGE
    assert first.held[0].id == "uid-c000"
    assert (len(last.held), last.pages, last.number) == (3, 3, 3)
    assert beyond == last
    assert shown([], Choice(number=5)).pages == 1


@pytest.mark.parametrize(
    ("text", "number"), [("", 1), ("0", 1), ("-1", 1), ("x", 1), ("7", 7), ("9" * 30, 1)]
)
def test_a_page_that_cannot_be_is_the_first(text: str, number: int) -> None:
    assert Choice.of({"page": text}).number == number


def test_a_container_that_another_one_replaces_is_neither_listed_nor_counted() -> None:
    old, new = held("a"), held("b", "deploying", replaces="a")
    page = shown([old, new, held("c")])
    assert [each.id for each in page.held] == ["uid-b", "uid-c"]
    assert page.counts == ((Situation.PROGRESS, 1), (Situation.RUNNING, 1))
    assert (page.total, page.found) == (2, 2)
    assert shown([old]).total == 1, "it is listed again"


def test_a_line_end_is_not_in_any_text() -> None:
    assert not names([held("a", tag="b")], Choice(text="b\na"))
    assert names([held("a", tag="b")], Choice(text="acme/web")) == ["a"]
