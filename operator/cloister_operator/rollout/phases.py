"""The phases of a Container and the transitions between them: one table, and one function.

The phases are those of the Admin API (spec 5.1, 5.2). `next_status` is the only
caller of `move`; a test walks all pairs. A reconcile may skip phases between two others, when a
write failed and the next reconcile saw more: so only those transitions are forbidden that skip what
users wait for.
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

_STARTING = frozenset({_PENDING, _DEPLOYING, _STARTED})

TRANSITIONS: dict[ContainerPhase | None, frozenset[ContainerPhase]] = {
    None: frozenset(ContainerPhase),
    _PENDING: _STARTING | {_READY, _FAILED, _STOPPING, _STOPPED},
    _DEPLOYING: _STARTING | {_READY, _FAILED, _STOPPING, _STOPPED},
    _STARTED: _STARTING | {_READY, _FAILED, _STOPPING, _STOPPED},
    _READY: _STARTING | {_READY, _FAILED, _STOPPING, _STOPPED},
    _FAILED: _STARTING | {_READY, _FAILED, _STOPPING, _STOPPED},
    _STOPPING: _STARTING | {_FAILED, _STOPPING, _STOPPED},
    _STOPPED: _STARTING | {_FAILED, _STOPPING, _STOPPED},
}
"""Phases that may follow each phase. What is stopped never becomes ready without having started: an
Enclave from before the stop never serves again."""


def may_move(before: ContainerPhase | None, after: ContainerPhase) -> bool:
    """Return whether a phase may follow another; None = none was written yet."""
    return after in TRANSITIONS[before]


def move(before: ContainerPhase | None, after: ContainerPhase) -> ContainerPhase:
    """Return the phase to write; `before` is None when none was written yet.

    Raises
    ------
    ValueError
        When the table does not have the transition: a rule is wrong.
    """
    if not may_move(before, after):
        raise ValueError(f"a container cannot move from {before} to {after}")
    return after
