"""The effect of each REST action in each state, and the refusal where it is not allowed.

One table, which the facade checks before it writes; the operator never uses it. Interfaces without
actions (kubectl, GitOps) need none: every spec is legal there, and the operator handles it.
"""

from collections.abc import Mapping
from enum import StrEnum

from cloister_crds.kinds.container import ContainerPhase, UpdatePhase

__all__ = ["TABLE", "ActionState", "ApiAction", "Effect", "action_state_of", "effect_of", "refusal"]


class ApiAction(StrEnum):
    """An action of the REST API on a container (spec 6, 22.1)."""

    RELAUNCH = "relaunch"
    STOP = "stop"
    START = "start"
    DELETE = "delete"
    ACCEPT = "accept"
    CANCEL = "cancel"


class ActionState(StrEnum):
    """The state of a container, as far as it matters for actions."""

    DEPLOYING = "deploying"
    """Pending, deploying or started, and nothing served or failed before."""
    READY = "ready"
    FAILED = "failed"
    STOPPING = "stopping"
    STOPPED = "stopped"
    UPDATING = "updating"
    """An update is in progress, waits or has failed."""


class Effect(StrEnum):
    """The effect of an action."""

    REPLACE_ATTEMPT = "replaces the attempt"
    UPDATE = "starts an update"
    REPLACE_CANDIDATE = "replaces the candidate"
    END_ATTEMPT = "ends the attempt and stops"
    STOP = "stops"
    END_UPDATE = "ends the update and stops"
    NOTHING = "changes nothing"
    DEPLOY = "deploys"
    DELETE = "deletes"
    PROMOTE = "promotes the staged update"
    DISCARD = "discards the update"
    REFUSE = "is refused"


_REFUSED = Effect.REFUSE


def _row(
    deploying: Effect,
    ready: Effect,
    failed: Effect,
    stopping: Effect,
    stopped: Effect,
    updating: Effect,
) -> Mapping[ActionState, Effect]:
    return dict(
        zip(ActionState, (deploying, ready, failed, stopping, stopped, updating), strict=True)
    )


TABLE: Mapping[ApiAction, Mapping[ActionState, Effect]] = {
    ApiAction.RELAUNCH: _row(
        Effect.REPLACE_ATTEMPT,
        Effect.UPDATE,
        Effect.UPDATE,
        _REFUSED,
        _REFUSED,
        Effect.REPLACE_CANDIDATE,
    ),
    ApiAction.STOP: _row(
        Effect.END_ATTEMPT,
        Effect.STOP,
        Effect.STOP,
        Effect.NOTHING,
        Effect.NOTHING,
        Effect.END_UPDATE,
    ),
    ApiAction.START: _row(_REFUSED, _REFUSED, _REFUSED, _REFUSED, Effect.DEPLOY, _REFUSED),
    ApiAction.DELETE: _row(*[Effect.DELETE] * len(ActionState)),
    ApiAction.ACCEPT: _row(_REFUSED, _REFUSED, _REFUSED, _REFUSED, _REFUSED, Effect.PROMOTE),
    ApiAction.CANCEL: _row(_REFUSED, _REFUSED, _REFUSED, _REFUSED, _REFUSED, Effect.DISCARD),
}
"""Effects by action and state."""

_INSTEAD: Mapping[tuple[ApiAction, ActionState], str] = {
    (ApiAction.RELAUNCH, ActionState.STOPPING): "wait until it is stopped, then start it",
    (ApiAction.RELAUNCH, ActionState.STOPPED): "start it instead; start takes the same fields",
    (ApiAction.START, ActionState.STOPPING): "wait until it is stopped",
    (ApiAction.START, ActionState.FAILED): "relaunch it instead",
    (ApiAction.START, ActionState.READY): "it runs; relaunch it to change it",
    (ApiAction.START, ActionState.DEPLOYING): "it is being deployed; relaunch it to change it",
    (ApiAction.START, ActionState.UPDATING): "it is being updated; relaunch it to change it",
}
"""What to do where an action is refused."""


def action_state_of(phase: ContainerPhase, update: UpdatePhase | None) -> ActionState:
    """Return the state of a container.

    Parameters
    ----------
    update
        The status of its update, also of one that waits or has failed; None if there is none.
    """
    if phase is ContainerPhase.STOPPING:
        return ActionState.STOPPING
    if phase is ContainerPhase.STOPPED:
        return ActionState.STOPPED
    if update is not None:
        return ActionState.UPDATING
    settled = {ContainerPhase.READY: ActionState.READY, ContainerPhase.FAILED: ActionState.FAILED}
    return settled.get(phase, ActionState.DEPLOYING)


def effect_of(action: ApiAction, state: ActionState) -> Effect:
    """Return the effect of an action in a state."""
    return TABLE[action][state]


def refusal(
    action: ApiAction,
    phase: ContainerPhase,
    update: UpdatePhase | None,
    *,
    gpus: int = 0,
    deleting: bool = False,
) -> str | None:
    """Return why an action is refused now.

    Parameters
    ----------
    update
        The status of its update; None if there is none.
    deleting
        Whether the container is being deleted, and stopping for that reason.

    Returns
    -------
    str | None
        The message of the 409, which names the action and the state; None if it may be done.
    """
    state = action_state_of(phase, update)
    if effect_of(action, state) is Effect.REFUSE:
        instead = _INSTEAD.get((action, state), "no update is in progress")
        if deleting:
            instead = "it is being deleted; create another one"
        during = " while an update is in progress" if state is ActionState.UPDATING else ""
        return f"{action} is not possible in state {phase}{during}: {instead}"
    # The table knows states of a container only; accept depends on how far the update is.
    if action is ApiAction.ACCEPT and update is not UpdatePhase.READY:
        if update is UpdatePhase.FAILED:
            return (
                "the update has failed and cannot be accepted: relaunch with another tag or other "
                "values, or cancel the update"
            )
        return (
            f"the update is {update} and cannot be accepted yet: wait until its status is ready, "
            "or cancel it"
        )
    # The update deletes the present release first, so there is nothing to return to.
    if action is ApiAction.CANCEL and gpus > 1:
        return (
            f"cancel is not possible with {gpus} GPUs, whose update deletes the present "
            "release first: relaunch with the tag that you want"
        )
    return None
