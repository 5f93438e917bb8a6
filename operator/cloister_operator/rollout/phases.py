"""The status words and the moves between them: one table, and one function that makes a move.

The words are those of the Admin API (spec, "States and transitions"). `report` is the only caller
of `move`; a test walks all pairs. A pass may miss words that lie between two others, when its write
failed and the next pass saw more: so only those moves are forbidden that skip what users wait for.
"""

from cloister_crds.kinds.container import ContainerPhase

__all__ = ["TRANSITIONS", "may_move", "move"]

_PENDING = ContainerPhase.PENDING
_DEPLOYING = ContainerPhase.DEPLOYING
_STARTED = ContainerPhase.STARTED
_READY = ContainerPhase.READY
_FAILED = ContainerPhase.FAILED
_STOPPING = ContainerPhase.STOPPING
_STOPPED = ContainerPhase.STOPPED

_ON_THE_WAY = frozenset({_PENDING, _DEPLOYING, _STARTED})

TRANSITIONS: dict[ContainerPhase | None, frozenset[ContainerPhase]] = {
    None: frozenset(ContainerPhase),
    _PENDING: _ON_THE_WAY | {_READY, _FAILED, _STOPPING, _STOPPED},
    _DEPLOYING: _ON_THE_WAY | {_READY, _FAILED, _STOPPING, _STOPPED},
    _STARTED: _ON_THE_WAY | {_READY, _FAILED, _STOPPING, _STOPPED},
    _READY: _ON_THE_WAY | {_READY, _FAILED, _STOPPING, _STOPPED},
    _FAILED: _ON_THE_WAY | {_READY, _FAILED, _STOPPING, _STOPPED},
    _STOPPING: _ON_THE_WAY | {_FAILED, _STOPPING, _STOPPED},
    _STOPPED: _ON_THE_WAY | {_FAILED, _STOPPING, _STOPPED},
}
"""Where each word may lead. What is stopped never becomes ready without having started: an Enclave
of before the stop never serves again."""


def may_move(before: ContainerPhase | None, after: ContainerPhase) -> bool:
    """Tell whether the table has a move.

    Parameters
    ----------
    before
        The word as it stands; None = none was written yet.
    after
        The word that is to follow.
    """
    return after in TRANSITIONS[before]


def move(before: ContainerPhase | None, after: ContainerPhase) -> ContainerPhase:
    """Make a move.

    Parameters
    ----------
    before
        The word as it stands; None = none was written yet.
    after
        The word that was decided.

    Returns
    -------
    ContainerPhase
        The word to write.

    Raises
    ------
    ValueError
        When the table does not have the move: a rule is wrong.
    """
    if not may_move(before, after):
        raise ValueError(f"a container cannot go from {before} to {after}")
    return after
