"""Status words: all pairs of them."""

import pytest

from cloister_crds.kinds.container import ContainerPhase
from cloister_operator.rollout.decision import TRANSITIONS, move

FORBIDDEN = {
    (ContainerPhase.STOPPING, ContainerPhase.READY),
    (ContainerPhase.STOPPED, ContainerPhase.READY),
}
PAIRS = [(before, after) for before in (None, *ContainerPhase) for after in ContainerPhase]


@pytest.mark.spec("5.1", "5.2")
@pytest.mark.lifecycle("no-other")
@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_every_pair_is_a_move_or_an_error(
    before: ContainerPhase | None, after: ContainerPhase
) -> None:
    if (before, after) in FORBIDDEN:
        with pytest.raises(ValueError, match=f"from {before} to {after}"):
            move(before, after)
    else:
        assert move(before, after) is after


def test_the_table_has_a_row_for_every_word() -> None:
    assert set(TRANSITIONS) == {None, *ContainerPhase}
