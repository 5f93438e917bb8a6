"""What each REST action does in each state: the whole table."""

import pytest

from cloister_crds.kinds.container import (
    Container,
    ContainerPhase,
    ContainerResources,
    ContainerStatus,
    DesiredState,
    UpdatePhase,
    UpdateStatus,
)
from cloister_crds.lifecycle.actions import (
    ApiAction,
    Effect,
    Standing,
    effect_of,
    refusal,
    standing_of,
)
from tests.support.builders import container_of

WANT = """
relaunch  replaces the attempt        | starts an update | starts an update | is refused      | is refused      | replaces the candidate
stop      ends the attempt and stops  | stops            | stops            | changes nothing | changes nothing | ends the update and stops
start     is refused                  | is refused       | is refused       | is refused      | deploys         | is refused
delete    deletes                     | deletes          | deletes          | deletes         | deletes         | deletes
accept    is refused                  | is refused       | is refused       | is refused      | is refused      | promotes the staged update
cancel    is refused                  | is refused       | is refused       | is refused      | is refused      | discards the update
"""  # noqa: E501 - a table reads best as one
CELLS = [
    (ApiAction(row.split()[0]), standing, Effect(cell.strip()))
    for row in WANT.strip().splitlines()
    for standing, cell in zip(Standing, row.split(maxsplit=1)[1].split("|"), strict=True)
]


def update_of(status: UpdatePhase) -> UpdateStatus:
    return UpdateStatus(enclave="web-x-1", revision="x", tag="v2", status=status)


def standing_container(standing: Standing, **status: object) -> Container:
    phases = {
        Standing.ON_THE_WAY: ContainerPhase.STARTED,
        Standing.READY: ContainerPhase.READY,
        Standing.FAILED: ContainerPhase.FAILED,
        Standing.STOPPING: ContainerPhase.STOPPING,
        Standing.STOPPED: ContainerPhase.STOPPED,
        Standing.UPDATING: ContainerPhase.READY,
    }
    down = standing in {Standing.STOPPING, Standing.STOPPED}
    update = update_of(UpdatePhase.READY) if standing is Standing.UPDATING else None
    return container_of(
        state=DesiredState.STOPPED if down else DesiredState.RUNNING,
        status=ContainerStatus.model_validate(
            {"phase": phases[standing], "update": update, **status}
        ),
    )


@pytest.mark.parametrize(("action", "standing", "want"), CELLS)
def test_the_table(action: ApiAction, standing: Standing, want: Effect) -> None:
    assert effect_of(action, standing) is want
    container = standing_container(standing)
    assert standing_of(container) is standing
    message = refusal(action, container)
    if want is Effect.REFUSE:
        assert message is not None
        assert message.startswith(f"{action} is not possible while the container is {standing}: ")
    else:
        assert message is None


def test_the_table_is_whole() -> None:
    assert len(CELLS) == len(ApiAction) * len(Standing)


@pytest.mark.parametrize("phase", [UpdatePhase.PENDING, UpdatePhase.STARTED, UpdatePhase.FAILED])
def test_only_a_ready_update_can_be_accepted(phase: UpdatePhase) -> None:
    container = standing_container(Standing.UPDATING, update=update_of(phase))
    message = refusal(ApiAction.ACCEPT, container)
    assert message is not None
    assert str(phase) in message


def test_an_update_of_several_gpus_cannot_be_cancelled() -> None:
    container = standing_container(Standing.UPDATING, resources=ContainerResources(gpus=8))
    message = refusal(ApiAction.CANCEL, container)
    assert message is not None
    assert "8 GPUs" in message


def test_a_container_without_status_is_on_its_way() -> None:
    assert standing_of(container_of()) is Standing.ON_THE_WAY


def test_a_stop_that_nobody_has_seen_yet_is_a_stop() -> None:
    container = container_of(
        state=DesiredState.STOPPED, status=ContainerStatus(phase=ContainerPhase.READY)
    )
    assert standing_of(container) is Standing.STOPPING


def test_a_start_that_nobody_has_seen_yet_is_a_start() -> None:
    container = container_of(status=ContainerStatus(phase=ContainerPhase.STOPPED))
    assert standing_of(container) is Standing.ON_THE_WAY
