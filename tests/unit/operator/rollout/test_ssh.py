"""SSH to debug enclaves: which one it reaches, and that others have none."""

from typing import Any

import pytest

from cloister_crds.kinds import SSHKey
from cloister_crds.kinds.container import DesiredState
from cloister_crds.kinds.meta import ObjectMeta
from cloister_crds.kinds.sshkey import SSHKeySpec
from tests.support.builders.world import SimulatedCluster
from tests.unit.crds.lifecycle.test_sshkeys import GOOD

KEY = SSHKey(metadata=ObjectMeta(name="me"), spec=SSHKeySpec(public_key=GOOD))


def debugged(**spec: Any) -> SimulatedCluster:
    """Make a world with a debug Container that a key may log in to."""
    world = SimulatedCluster()
    world.ssh_keys = (KEY,)
    world.change_spec(debug=True, ssh_keys=("me",), **spec)
    return world


def test_people_log_in_to_what_serves() -> None:
    world = debugged()
    world.settle()
    status = world.container.status
    (enclave,) = world.enclaves.values()
    assert [each.name for each in enclave.spec.ssh_keys] == ["me"]
    assert world.shells is not None
    assert world.shells.selects == status.active_enclave
    assert status.ssh_port == world.shells.node_port


def test_people_log_in_to_what_is_starting_when_nothing_serves() -> None:
    world = debugged()
    for _ in range(6):
        world.reconcile()
    assert not world.container.status.active_enclave
    assert world.shells is not None
    assert world.shells.selects in world.enclaves


def test_a_key_that_changes_later_changes_nothing_that_runs() -> None:
    world = debugged()
    world.settle()
    world.ssh_keys = ()
    world.settle()
    (enclave,) = world.enclaves.values()
    assert enclave.spec.ssh_keys[0].public_key == GOOD


@pytest.mark.parametrize("change", [{"ssh_keys": ()}, {"debug": False, "ssh_keys": ()}])
def test_the_way_in_goes_with_the_keys(change: dict[str, Any]) -> None:
    world = debugged()
    world.settle()
    world.change_spec(**change)
    world.settle()
    assert world.shells is None
    assert world.container.status.ssh_port is None
    assert all(not each.spec.ssh_keys for each in world.enclaves.values())


def test_a_stopped_container_has_no_way_in() -> None:
    world = debugged()
    world.settle()
    world.change_spec(state=DesiredState.STOPPED)
    world.settle()
    assert world.shells is None
    assert world.container.status.ssh_port is None
