"""What each REST action does in each state: the whole table."""

import pytest

from cloister_crds.kinds.container import ContainerPhase, UpdatePhase
from cloister_crds.lifecycle.actions import (
    ActionState,
    ApiAction,
    Effect,
    action_state_of,
    effect_of,
    refusal,
)

WANT = """
relaunch  replaces the attempt        | starts an update | starts an update | is refused      | is refused      | replaces the candidate
stop      ends the attempt and stops  | stops            | stops            | changes nothing | changes nothing | ends the update and stops
start     is refused                  | is refused       | is refused       | is refused      | deploys         | is refused
delete    deletes                     | deletes          | deletes          | deletes         | deletes         | deletes
accept    is refused                  | is refused       | is refused       | is refused      | is refused      | promotes the staged update
cancel    is refused                  | is refused       | is refused       | is refused      | is refused      | discards the update
"""  # noqa: E501 - a table reads best as one
CELLS = [
    (ApiAction(row.split()[0]), state, Effect(cell.strip()))
    for row in WANT.strip().splitlines()
    for state, cell in zip(ActionState, row.split(maxsplit=1)[1].split("|"), strict=True)
]


PHASES = {
    ActionState.DEPLOYING: ContainerPhase.STARTED,
    ActionState.READY: ContainerPhase.READY,
    ActionState.FAILED: ContainerPhase.FAILED,
    ActionState.STOPPING: ContainerPhase.STOPPING,
    ActionState.STOPPED: ContainerPhase.STOPPED,
    ActionState.UPDATING: ContainerPhase.READY,
}


@pytest.mark.spec("22.1")
@pytest.mark.parametrize(("action", "state", "want"), CELLS)
def test_the_table(action: ApiAction, state: ActionState, want: Effect) -> None:
    phase = PHASES[state]
    update = UpdatePhase.READY if state is ActionState.UPDATING else None
    assert action_state_of(phase, update) is state
    assert effect_of(action, state) is want
    message = refusal(action, phase, update)
    if want is Effect.REFUSE:
        assert message is not None
        assert message.startswith(f"{action} is not possible in state {phase}")
    else:
        assert message is None


def test_the_table_is_whole() -> None:
    assert len(CELLS) == len(ApiAction) * len(ActionState)


@pytest.mark.spec("22.2")
@pytest.mark.parametrize("update", [UpdatePhase.PENDING, UpdatePhase.STARTED, UpdatePhase.FAILED])
def test_only_a_ready_update_can_be_accepted(update: UpdatePhase) -> None:
    message = refusal(ApiAction.ACCEPT, ContainerPhase.READY, update)
    assert message is not None
    failed = update is UpdatePhase.FAILED
    assert ("has failed" if failed else f"is {update}") in message
    assert ("wait" in message) is not failed, "a failed one never becomes ready"


@pytest.mark.spec("5.3", "22.1")
@pytest.mark.parametrize("phase", [ContainerPhase.READY, ContainerPhase.FAILED])
@pytest.mark.parametrize("update", UpdatePhase)
def test_every_status_of_an_update(phase: ContainerPhase, update: UpdatePhase) -> None:
    """Also one that failed, and the attempt of a failed container (spec 22.3)."""
    allowed = {ApiAction.RELAUNCH, ApiAction.STOP, ApiAction.DELETE, ApiAction.CANCEL}
    if update is UpdatePhase.READY:
        allowed.add(ApiAction.ACCEPT)
    assert {action for action in ApiAction if refusal(action, phase, update) is None} == allowed
    assert "while an update is in progress" in (refusal(ApiAction.START, phase, update) or "")


@pytest.mark.spec("5.5")
@pytest.mark.lifecycle("cancel")
@pytest.mark.parametrize(("gpus", "allowed"), [(0, True), (1, True), (2, False), (8, False)])
def test_an_update_of_several_gpus_cannot_be_cancelled(gpus: int, allowed: object) -> None:
    for update in UpdatePhase:
        message = refusal(ApiAction.CANCEL, ContainerPhase.READY, update, gpus=gpus)
        assert (message is None) is allowed
        assert message is None or f"{gpus} GPUs" in message


@pytest.mark.parametrize(
    ("action", "phase", "text"),
    [
        (ApiAction.RELAUNCH, ContainerPhase.STOPPED, "start it instead"),
        (ApiAction.START, ContainerPhase.FAILED, "relaunch it instead"),
        (ApiAction.CANCEL, ContainerPhase.READY, "no update is in progress"),
    ],
)
def test_a_refusal_says_what_to_do(action: ApiAction, phase: ContainerPhase, text: str) -> None:
    assert text in (refusal(action, phase, None) or "")


@pytest.mark.parametrize("phase", [ContainerPhase.STOPPING, ContainerPhase.STOPPED])
def test_a_stop_ends_an_update(phase: ContainerPhase) -> None:
    assert action_state_of(phase, UpdatePhase.STARTED) in {
        ActionState.STOPPING,
        ActionState.STOPPED,
    }
