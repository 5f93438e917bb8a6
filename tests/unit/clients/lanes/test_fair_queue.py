"""Whose lookup is next: turns of organizations, shares, hosts, lookups that several want."""

import pytest

from cloister_clients.lanes.lane import FairQueue, Shares


def always(organization: str, host: str) -> bool:
    return True


def started(queue: FairQueue[str]) -> list[str]:
    """Start everything that has room."""
    names = []
    while (found := queue.start(always)) is not None:
        names.append(found[0])
    return names


@pytest.fixture
def queue() -> FairQueue[str]:
    return FairQueue(Shares(total=6, per_organization=2, per_host=3))


def test_organizations_take_turns_and_have_a_share_each(queue: FairQueue[str]) -> None:
    for number in range(100):
        queue.add(f"a{number}", "a", f"slow{number}")
    for number in range(3):
        queue.add(f"b{number}", "b", f"fast{number}")
    assert started(queue) == ["a0", "b0", "a1", "b1"]
    queue.finish("b0")
    assert started(queue) == ["b2"]
    assert (queue.running, queue.waiting) == (4, 98)


def test_a_host_has_a_share_of_all_organizations(queue: FairQueue[str]) -> None:
    for organization in "abcd":
        queue.add(f"{organization}0", organization, "one")
        queue.add(f"{organization}1", organization, "one")
    assert started(queue) == ["a0", "b0", "c0"]
    queue.add("d2", "d", "other")
    assert started(queue) == ["d2"]
    queue.finish("a0")
    assert started(queue) == ["a1"]


def test_without_a_host_only_the_other_shares_count(queue: FairQueue[str]) -> None:
    for organization in "abcd":
        queue.add(f"{organization}0", organization, "")
        queue.add(f"{organization}1", organization, "")
    assert started(queue) == ["a0", "b0", "c0", "d0", "a1", "b1"]


def test_one_host_is_served_in_order(queue: FairQueue[str]) -> None:
    for name in ("x", "y", "z"):
        queue.add(name, "a", "one")
    assert started(queue) == ["x", "y"]
    queue.finish("y")
    assert started(queue) == ["z"]


def test_what_two_organizations_want_starts_at_the_first_turn_of_either(
    queue: FairQueue[str],
) -> None:
    for number in range(10):
        queue.add(f"a{number}", "a", f"h{number}")
    assert started(queue) == ["a0", "a1"]
    queue.add("a9", "b", "h9")
    assert started(queue) == ["a9"]
    queue.finish("a0")
    assert started(queue) == ["a2"]
    assert queue.waiting == 6


def test_nothing_is_left_of_what_is_finished_or_withdrawn(queue: FairQueue[str]) -> None:
    for organization in "ab":
        for number in range(5):
            queue.add(f"{organization}{number}", organization, "one")
    queue.add("both", "a", "one")
    queue.add("both", "b", "one")
    assert queue.withdraw("a", "one") == ["a0", "a1", "a2", "a3", "a4"]
    assert queue.withdraw(None, "one") == ["b0", "b1", "b2", "b3", "b4", "both"]
    queue.add("last", "a", "one")
    assert started(queue) == ["last"]
    queue.finish("last")
    assert (queue.running, queue.waiting) == (0, 0)
    assert not any(vars(queue)[name] for name in vars(queue) if name != "_shares")
