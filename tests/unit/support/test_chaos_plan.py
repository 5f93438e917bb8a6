"""The actions of a chaos run depend on its seed alone."""

import itertools

from tests.support.chaos.plan import SHORT, SHORT_SEED, VERBS, plan


def test_a_seed_is_a_sequence_of_actions() -> None:
    first, again = (list(itertools.islice(plan(7), 300)) for _ in range(2))
    assert first == again
    assert first != list(itertools.islice(plan(8), 300))
    assert len({act.verb for act in first}) > 15


def test_the_short_run_has_every_kind_of_action() -> None:
    assert {act.verb for act in itertools.islice(plan(SHORT_SEED), SHORT)} == VERBS
