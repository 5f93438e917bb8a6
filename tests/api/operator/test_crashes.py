"""The operator killed, suspended or replaced at bad moments: the result is as without that.

There is no node: `tests.support.stand_ins.pod_status` writes the status of Pods as a kubelet would.
"""

import random
import signal
from pathlib import Path

import pytest

from cloister_crds.kinds.container import Container, ContainerPhase, ContainerStatus
from dev.cluster import Cluster
from dev.cluster.images import Image, push
from tests.support.faults.crashing_operators import QUICK_LEASE
from tests.support.programs.operator import Installation, OperatorProcess, file_text, manifest
from tests.support.stand_ins.pod_status import fail_pod, run_pod
from tests.support.waiting import until_sync

MANY = 40
"""Containers, more than twice as many as there are workers."""


@pytest.fixture
def image(api_cluster: Cluster) -> str:
    return push(Image(files={"/x": b"x"}, entrypoint=("/x",)), api_cluster.registry, "tests/x")


@pytest.fixture
def prepared(installation: Installation, image: str) -> Installation:
    installation.repository("acme/web").release("v1", file_text(image))
    installation.settings["lease"] = QUICK_LEASE
    return installation


def holder(installation: Installation) -> str:
    """Return who holds the Lease; empty = nobody."""
    where = ("lease/cloister-operator", "-n", installation.system)
    return installation.kubectl("get", *where, "-o", "jsonpath={.spec.holderIdentity}").strip()


def only_enclave(installation: Installation, name: str = "web") -> str:
    enclaves = until_sync(lambda: installation.enclaves(name), within=60, what="an Enclave")
    assert len(enclaves) == 1
    return enclaves[0].metadata.name


def test_a_pod_that_runs_makes_it_ready(prepared: Installation) -> None:
    prepared.operator().wait_until_it_leads()
    prepared.create_container("web", repo="acme/web", tag="v1")
    run_pod(prepared, only_enclave(prepared))
    container = prepared.wait_for("web", "Available")
    assert container.status.active_enclave == only_enclave(prepared)


def test_a_lost_pod_is_replaced_whatever_the_settings_are_by_then(
    prepared: Installation, image: str
) -> None:
    """Its file, which strict rules and the new name of the service refuse, was admitted before."""
    volumes = ["a:/later/x"]
    prepared.repository("acme/old").release("v1", file_text(image, ipc="host", volumes=volumes))
    first = prepared.operator()
    first.wait_until_it_leads()
    prepared.create_container("web", repo="acme/old", tag="v1")
    enclave = only_enclave(prepared)
    run_pod(prepared, enclave)
    prepared.wait_for("web", "Available")
    prepared.kill_operator()
    prepared.settings |= {"strictFrom": "0.10.0", "service": "later"}
    prepared.kubectl("delete", f"pod/{enclave}", "-n", prepared.namespace, "--grace-period=0")
    prepared.operator().wait_until_it_leads()

    def replaced() -> str:
        names = {each.metadata.name for each in prepared.enclaves("web")} - {enclave}
        pods = {each["metadata"]["name"] for each in prepared.objects("pods")}
        return next(iter(names & pods), "")

    successor = until_sync(replaced, within=60, what="the Pod of another attempt")
    (pod,) = [p for p in prepared.objects("pods") if p["metadata"]["name"] == successor]
    (web,) = [c for c in pod["spec"]["containers"] if c["name"] == "web"]
    mounts = {each["mountPath"] for each in web["volumeMounts"]}
    assert {"/cloister", "/later/x"} <= mounts
    assert "/later" not in mounts


@pytest.mark.lifecycle("first-failed")
def test_an_exit_with_an_error_is_reported(prepared: Installation) -> None:
    prepared.operator().wait_until_it_leads()
    prepared.create_container("web", repo="acme/web", tag="v1")
    fail_pod(prepared, only_enclave(prepared), code=42)
    container = prepared.wait_for("web", "Stalled", reason="BootFailed")
    assert "exit code 42" in container.status.message


def wait_until_it_is_at(
    step: str, process: OperatorProcess, installation: Installation, *, every: float
) -> None:
    def reached() -> bool:
        return step in process.text or bool(installation.enclaves("web"))

    until_sync(reached, within=60, every=every, what=step)


@pytest.mark.lifecycle(
    "killed-in-automatic-update", "killed-in-create", "killed-in-drain", "killed-in-staged-update"
)
@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2))
def test_killed_between_any_two_writes(prepared: Installation, seed: int) -> None:
    chance = random.Random(seed)
    prepared.create_container("web", repo="acme/web", tag="v1")
    for _ in range(2):
        process = prepared.operator()
        kinds = ("CreateEnclave", "EnsureDeployment", "the cache has synced")
        word = chance.choice(kinds)

        wait_until_it_is_at(word, process, prepared, every=chance.uniform(0.001, 0.05))
        prepared.kill_operator()
    prepared.operator().wait_until_it_leads()
    name = only_enclave(prepared)
    run_pod(prepared, name)
    prepared.wait_for("web", "Available")
    for kind in ("enclaves.cloister.dev", "pods", "services", "deployments.cloister.dev"):
        assert len(prepared.objects(kind)) == 1, kind


def statuses(installation: Installation) -> list[ContainerStatus]:
    """Return the statuses of all Containers."""
    bodies = installation.objects("containers.cloister.dev")
    return [Container.read(each).status for each in bodies]


def test_killed_while_many_are_deployed_at_once(prepared: Installation) -> None:
    """Progress that was deferred is lost with the process; the next one writes it."""
    spec = {"host": prepared.host, "repo": "acme/web", "tag": "v1"}
    names = (f"web-{number}" for number in range(MANY))
    prepared.apply(*(manifest("Container", each, spec, prepared.namespace) for each in names))
    first = prepared.operator()
    until_sync(
        lambda: first.text.count("CreateEnclave") > 4, within=60, every=0.01, what="Enclaves"
    )
    first.kill()
    assert any(each.phase is None for each in statuses(prepared)), "killed too late"
    prepared.operator().wait_until_it_leads()

    def told() -> bool:
        return all(
            each.phase is ContainerPhase.DEPLOYING and each.candidate for each in statuses(prepared)
        )

    until_sync(told, within=60, what="the progress of all")
    # A Pod may follow its Enclave later than the status of its Container does.
    until_sync(lambda: len(prepared.objects("pods")) >= MANY, within=60, what="the Pods of all")
    for kind in ("enclaves.cloister.dev", "pods"):
        assert len(prepared.objects(kind)) == MANY, kind


def test_an_enclave_that_waits_for_the_api_is_continued_by_the_next_operator(
    prepared: Installation,
) -> None:
    prepared.settings |= {"apiAddress": "http://api.invalid", "signedCertificates": True}
    prepared.operator()
    prepared.create_container("web", repo="acme/web", tag="v1")
    waiting = prepared.wait_for("web", "Reconciling", reason="ApiUnreachable", within=60)
    missing = "apiAddress http://api.invalid has no IPv4 address at present. Correct apiAddress"
    assert missing in waiting.status.message
    conditions = waiting.status.conditions
    assert missing in next(each.message for each in conditions if each.type == "Ready")

    def says_so() -> bool:
        return any(missing in each.status.message for each in prepared.enclaves("web"))

    until_sync(says_so, within=60, what="the reason in the Enclave's status")
    before = prepared.enclaves("web")[0]
    assert before.status.reason == "ApiUnreachable"
    prepared.kill_operator()
    prepared.settings["apiAddress"] = "http://192.0.2.1"
    prepared.operator().wait_until_it_leads()
    until_sync(lambda: prepared.objects("pods"), within=60, what="the Pod")
    (enclave,) = prepared.enclaves("web")
    assert (enclave.metadata.uid, enclave.spec.signed_certificate) == (before.metadata.uid, True)
    run_pod(prepared, enclave.metadata.name)
    prepared.wait_for("web", "Available")


def test_the_leader_is_replaced(prepared: Installation) -> None:
    first = prepared.operator()
    first.wait_until_it_leads()
    second = prepared.operator()
    until_sync(lambda: second.request("/readyz") == (200, "standby\n"), within=30, what="a standby")
    first.kill()
    second.wait_until_it_leads()
    prepared.create_container("web", repo="acme/web", tag="v1")
    only_enclave(prepared)
    assert second.stop() == 0
    assert holder(prepared) == "", "one that ends in peace gives the Lease up"
    third = prepared.operator()
    third.wait_until_it_leads()


def test_a_leader_that_was_suspended_too_long_exits(prepared: Installation) -> None:
    first = prepared.operator()
    first.wait_until_it_leads()
    first.send(signal.SIGSTOP)
    second = prepared.operator()
    second.wait_until_it_leads()
    first.send(signal.SIGCONT)
    assert first.wait() == 3
    assert "exiting: the Lease was not renewed in time" in first.text
    prepared.create_container("web", repo="acme/web", tag="v1")
    only_enclave(prepared)


def test_wrong_settings_are_reported(prepared: Installation, tmp_path: Path) -> None:
    prepared.settings = {"containersDomain": "x", "colour": "blue"}
    process = prepared.operator()
    assert process.wait() == 1
    assert "colour is not a setting" in process.text
    assert "containersDomain" in process.text
