"""The work queue: each key once, in order, with delays and backoff; time is a number here."""

import asyncio
from collections import Counter, defaultdict

from hypothesis import given
from hypothesis import strategies as st

from cloister_crds.backoff import Backoff
from cloister_operator.workqueue.queue import Schedule, WorkQueue
from cloister_operator.workqueue.triggers import Key, group_of

OPERATIONS = st.lists(st.tuples(st.sampled_from("abcd"), st.booleans(), st.booleans()), max_size=80)
"""Group of a key, whether it is added with low priority, and whether one is taken after it."""


def taken(schedule: Schedule[str], now: float = 0.0) -> list[str]:
    keys = []
    while (key := schedule.take(now)) is not None:
        keys.append(key)
    return keys


def test_a_key_is_given_out_once() -> None:
    schedule = Schedule[str]()
    for key in ("a", "b", "a"):
        schedule.add(key, 0)
    assert taken(schedule) == ["a", "b"]


def test_a_change_during_the_work_makes_the_key_due_again() -> None:
    schedule = Schedule[str]()
    schedule.add("a", 0)
    assert schedule.take(0) == "a"
    schedule.add("a", 0)
    assert schedule.take(0) is None
    schedule.done("a", 0)
    assert schedule.take(0) == "a"
    schedule.done("a", 0)
    assert schedule.take(0) is None


def test_a_delayed_key_is_due_at_its_time() -> None:
    schedule = Schedule[str]()
    schedule.add_at("a", 5)
    schedule.add_at("b", 3)
    assert schedule.next_due() == 3
    assert taken(schedule, 4) == ["b"]
    assert taken(schedule, 5) == ["a"]
    assert schedule.next_due() is None


def test_the_earliest_of_several_delays_counts() -> None:
    schedule = Schedule[str]()
    for when in (5, 2, 9):
        schedule.add_at("a", when)
    assert schedule.delayed == 1
    assert taken(schedule, 2) == ["a"]
    schedule.done("a", 0)
    assert taken(schedule, 10) == []


def test_an_event_comes_before_a_delay() -> None:
    schedule = Schedule[str]()
    schedule.add_at("a", 100)
    schedule.add("a", 0)
    assert taken(schedule, 0) == ["a"]
    schedule.done("a", 0)
    assert taken(schedule, 100) == []


def test_low_priority_keys_come_after_the_rest() -> None:
    schedule = Schedule[str]()
    schedule.add("new", 0, low_priority=True)
    schedule.add("begun", 0)
    assert len(schedule) == 2
    assert taken(schedule) == ["begun", "new"]


def test_a_key_that_somebody_waits_for_gets_normal_priority() -> None:
    schedule = Schedule[str]()
    for key in ("a", "b"):
        schedule.add(key, 0, low_priority=True)
    schedule.add("b", 0)
    schedule.add("b", 0, low_priority=True)
    schedule.add_at("a", 100)
    assert taken(schedule) == ["b", "a"]
    assert schedule.delayed == 0


def test_low_priority_keys_are_not_starved() -> None:
    schedule = Schedule[str]()
    schedule.add("new", 0, low_priority=True)
    for round_ in range(100):
        schedule.add("busy", 0)
        key = schedule.take(0)
        if key == "new":
            assert round_ > 10
            return
        assert key == "busy"
        schedule.done("busy", 0)
    raise AssertionError("the key of low priority was starved")


def test_a_namespace_of_thousands_of_keys_delays_another_by_one_turn() -> None:
    for low_priority in (False, True):
        schedule = Schedule[Key](group_of=group_of)
        for number in range(5000):
            schedule.add(Key("Secret", "attacker", f"s{number}"), 0, low_priority=low_priority)
        schedule.add(Key("Container", "victim", "web"), 0, low_priority=low_priority)
        schedule.add(Key("Organization", "", "victim"), 0, low_priority=low_priority)
        first = [schedule.take(0) for _ in range(3)]
        assert {group_of(key) for key in first if key} == {"attacker", "victim", "Organization"}
        assert len(schedule) == 4999


@given(OPERATIONS)
def test_between_two_turns_of_a_group_every_other_has_one(
    operations: list[tuple[str, bool, bool]],
) -> None:
    schedule = Schedule[tuple[str, int]](group_of=lambda key: key[0])
    waiting, since = Counter[str](), defaultdict[str, Counter[str]](Counter)

    def take() -> None:
        key = schedule.take(0)
        assert key is not None
        group = key[0]
        waiting[group] -= 1
        since.pop(group, None)
        for other in (each for each, keys in waiting.items() if keys and each != group):
            since[other][group] += 1
            assert since[other][group] == 1

    for number, (group, _, takes) in enumerate(operations):
        schedule.add((group, number), 0)
        waiting[group] += 1
        if takes:
            take()
    while schedule:
        take()


@given(OPERATIONS)
def test_each_key_is_given_out_once_and_in_the_order_of_its_group(
    operations: list[tuple[str, bool, bool]],
) -> None:
    schedule = Schedule[tuple[str, bool, int]](group_of=lambda key: key[0])
    given_out = []
    for number, (group, low, takes) in enumerate(operations):
        schedule.add((group, low, number), 0, low_priority=low)
        if takes:
            given_out.append(schedule.take(0))
    while (key := schedule.take(0)) is not None:
        given_out.append(key)
    everything = [(group, low, number) for number, (group, low, _) in enumerate(operations)]
    assert sorted(given_out) == sorted(everything)  # type: ignore[type-var]  # no None is among them
    for line in {key[:2] for key in everything}:
        assert [key for key in given_out if key and key[:2] == line] == [
            key for key in everything if key[:2] == line
        ]
    assert (len(schedule), schedule.normal, schedule.low) == (0, 0, 0)


def test_backoff_grows_with_failures_and_success_resets_it() -> None:
    schedule = Schedule[str](Backoff(first=1, longest=4, jitter=(0.75, 1.0)))
    delays = []
    for _ in range(4):
        schedule.add("a", 0)
        assert schedule.take(0) == "a"
        delays.append(schedule.failed("a", 0))
    assert [round(delay / 0.75) for delay in delays[:1]] == [1]
    assert all(
        0.75 * base <= delay <= base for delay, base in zip(delays, (1, 2, 4, 4), strict=True)
    )
    schedule.add("a", 0)
    schedule.take(0)
    schedule.done("a", 0)
    schedule.add("a", 0)
    schedule.take(0)
    assert schedule.failed("a", 0) <= 1


async def test_a_worker_waits_for_a_key_and_for_its_time() -> None:
    queue = WorkQueue[str]()
    waiting = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    queue.add("later", after=0.05)
    queue.add("now")
    assert await waiting == "now"
    assert await asyncio.wait_for(queue.take(), 5) == "later"
