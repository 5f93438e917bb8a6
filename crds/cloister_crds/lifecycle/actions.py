"""What each action of the REST door does in each state, and what it says where it may not.

One table, asked by the facade before it writes; the operator never asks it. Doors without actions
(kubectl, GitOps) need none: every spec is legal there, and the operator makes the best of it.
"""

from collections.abc import Mapping
from enum import StrEnum

from cloister_crds.kinds.container import Container, ContainerPhase, DesiredState

__all__ = ["TABLE", "ApiAction", "Effect", "Standing", "effect_of", "refusal", "standing_of"]


class ApiAction(StrEnum):
    """An action of the REST door on a container (spec, "Containers")."""

    RELAUNCH = "relaunch"
    STOP = "stop"
    START = "start"
    DELETE = "delete"
    ACCEPT = "accept"
    CANCEL = "cancel"


class Standing(StrEnum):
    """Where a container stands, as far as actions care."""

    ON_THE_WAY = "deploying"
    """Pending, deploying or started, and nothing came before."""
    READY = "ready"
    FAILED = "failed"
    STOPPING = "stopping"
    STOPPED = "stopped"
    UPDATING = "updating"
    """An update is in progress, waits or has failed."""


class Effect(StrEnum):
    """What an action does."""

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
    on_the_way: Effect,
    ready: Effect,
    failed: Effect,
    stopping: Effect,
    stopped: Effect,
    updating: Effect,
) -> Mapping[Standing, Effect]:
    return dict(
        zip(Standing, (on_the_way, ready, failed, stopping, stopped, updating), strict=True)
    )


TABLE: Mapping[ApiAction, Mapping[Standing, Effect]] = {
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
    ApiAction.DELETE: _row(*[Effect.DELETE] * len(Standing)),
    ApiAction.ACCEPT: _row(_REFUSED, _REFUSED, _REFUSED, _REFUSED, _REFUSED, Effect.PROMOTE),
    ApiAction.CANCEL: _row(_REFUSED, _REFUSED, _REFUSED, _REFUSED, _REFUSED, Effect.DISCARD),
}
"""Effects by action and standing."""

_INSTEAD: Mapping[tuple[ApiAction, Standing], str] = {
    (ApiAction.RELAUNCH, Standing.STOPPING): "wait until it is stopped, then start it",
    (ApiAction.RELAUNCH, Standing.STOPPED): "start it instead; start takes the same fields",
    (ApiAction.START, Standing.STOPPING): "wait until it is stopped",
    (ApiAction.START, Standing.FAILED): "relaunch it instead",
    (ApiAction.START, Standing.READY): "it runs; relaunch it to change it",
    (ApiAction.START, Standing.ON_THE_WAY): "it is being deployed; relaunch it to change it",
    (ApiAction.START, Standing.UPDATING): "it is being updated; relaunch it to change it",
}
"""What to do where an action is refused."""


def standing_of(container: Container) -> Standing:
    """Tell where a container stands.

    What spec says counts before what status says: a stop that the operator has not seen yet is a
    stop. A container without a status is on its way.

    Parameters
    ----------
    container
        The Container.
    """
    phase = container.status.phase or ContainerPhase.DEPLOYING
    down = {ContainerPhase.STOPPING, ContainerPhase.STOPPED}
    if container.spec.state is DesiredState.STOPPED:
        return Standing.STOPPED if phase is ContainerPhase.STOPPED else Standing.STOPPING
    if container.status.update is not None:
        return Standing.UPDATING
    if phase in down:
        return Standing.ON_THE_WAY
    return {
        ContainerPhase.READY: Standing.READY,
        ContainerPhase.FAILED: Standing.FAILED,
    }.get(phase, Standing.ON_THE_WAY)


def effect_of(action: ApiAction, standing: Standing) -> Effect:
    """Tell what an action does.

    Parameters
    ----------
    action
        The action.
    standing
        Where the container stands.
    """
    return TABLE[action][standing]


def refusal(action: ApiAction, container: Container) -> str | None:
    """Say why an action may not be done now.

    Parameters
    ----------
    action
        The action.
    container
        The Container.

    Returns
    -------
    str | None
        The message of the 409, which names the action and the state; None = it may be done.
    """
    standing = standing_of(container)
    if effect_of(action, standing) is Effect.REFUSE:
        instead = _INSTEAD.get((action, standing), "there is no update in progress")
        return f"{action} is not possible while the container is {standing}: {instead}."
    update = container.status.update
    if action is ApiAction.ACCEPT and update is not None and update.status.value != "ready":
        return (
            f"accept is not possible while the update is {update.status}: only an update that is "
            "ready and staged can be accepted."
        )
    gpus = container.status.resources.gpus if container.status.resources else 0
    if action is ApiAction.CANCEL and gpus > 1:
        return (
            f"cancel is not possible with {gpus} GPUs: such an update stops the present release "
            "first; relaunch the container with the tag you want."
        )
    return None
