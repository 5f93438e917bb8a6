"""What a Host means for a file: users that its Pods have, fields that it does not enforce."""

import pytest

from cloister_crds.config.model import ContainerConfig, Network, User
from cloister_crds.kinds.host import NetworkIsolation
from cloister_crds.lifecycle.admission.host_selection import host_conditions, unenforced_fields
from cloister_crds.lifecycle.admission.validation import validate_for_organization
from tests.support.builders.resources import IMAGE, file_of, host_of, release_of
from tests.unit.crds.lifecycle.test_validation import ask

ISOLATING = host_of(network_isolation=NetworkIsolation.CONTAINER)
SHARING = host_of(network_isolation=NetworkIsolation.POD)


@pytest.mark.parametrize(("uid", "gid"), [(65536, None), (1000, 65536)])
def test_a_user_beyond_the_user_namespace_is_refused(uid: int, gid: int | None) -> None:
    container = ContainerConfig(name="web", image=IMAGE, user=User(uid=uid, gid=gid))
    release = release_of(file_of(container))
    (problem,) = validate_for_organization(ask(hosts=(ISOLATING,), release=release))
    assert (problem.field, problem.code) == ("containers[0].user", "UserNotMapped")
    without = host_of(allow_privileged_launcher=True)
    assert validate_for_organization(ask(hosts=(without,), release=release)) == ()


def test_the_last_user_of_the_user_namespace_is_accepted() -> None:
    container = ContainerConfig(name="web", image=IMAGE, user=User(uid=65535, gid=65535))
    question = ask(hosts=(ISOLATING,), release=release_of(file_of(container)))
    assert validate_for_organization(question) == ()


@pytest.mark.parametrize("name", ["IPC_LOCK", "SYS_NICE", "SYS_RESOURCE"])
def test_capabilities_over_the_whole_node_are_refused(name: str) -> None:
    """Without a user namespace they stop every other enclave of the node."""
    container = ContainerConfig(name="web", image=IMAGE, cap_add=("NET_BIND_SERVICE", name))
    release = release_of(file_of(container))
    (problem,) = validate_for_organization(
        ask(hosts=(host_of(allow_privileged_launcher=True),), release=release)
    )
    assert (problem.field, problem.code) == ("containers[0].cap_add[1]", "CapabilityNotAvailable")
    assert "allowPrivilegedLauncher" in problem.message
    assert validate_for_organization(ask(hosts=(ISOLATING,), release=release)) == ()


def test_processes_are_not_limited_without_a_user_namespace() -> None:
    host = host_of(allow_privileged_launcher=True)
    assert unenforced_fields(host, file_of(), ("a",)) == ("a", "pids_limit")


def test_a_host_without_isolation_says_so_and_lists_networks() -> None:
    (isolated,) = (
        each for each in host_conditions(ISOLATING, (), containers=2) if "Net" in each.type
    )
    (shared,) = (each for each in host_conditions(SHARING, (), containers=2) if "Net" in each.type)
    assert (isolated.status, isolated.reason) == (True, "OwnNetworks")
    assert (shared.status, shared.reason) == (False, "SharedNetwork")
    config = file_of(networks={"inner": Network()})
    assert unenforced_fields(ISOLATING, config, ("a",)) == ("a",)
    assert unenforced_fields(SHARING, config, ("a",)) == ("a", "networks")
    assert unenforced_fields(SHARING, file_of(), ("a",)) == ("a",)
    full = tuple(str(number) for number in range(64))
    assert len(unenforced_fields(SHARING, config, full)) == 64
