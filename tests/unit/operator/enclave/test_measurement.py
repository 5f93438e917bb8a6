"""What the agent of an enclave attests by, on each kind of Host."""

from dataclasses import replace
from typing import Any

import pytest

from cloister_crds.kinds import Host
from cloister_crds.lifecycle.admission.host_selection import profile
from cloister_operator.enclave.config_map import build_config_map
from cloister_operator.enclave.guest_config.agent import agent_document
from cloister_operator.enclave.guest_config.measurement import measure_enclave
from cloister_operator.enclave.plan import EnclavePlan
from cloister_operator.enclave.pod.pod import build_pod
from tests.support.builders.enclave_plans import SETTINGS, SURROUNDINGS, WEB, host_of, plan_of

FOLDER = "/etc/cloister-agent"
MACHINE = {"tee": "SNP", "teeUnit": "Pod", "runtimeClassName": "kata-qemu-snp"}
NODE = {"tee": "TDX", "teeUnit": "Node", "attestationService": "unix:///run/aa/api.sock"}
HOSTS: dict[str, dict[str, Any]] = {"none": {}, "pod": MACHINE, "node": NODE}


def plan(name: str) -> EnclavePlan:
    return plan_of(WEB, host=host_of(**HOSTS[name]))


@pytest.mark.parametrize("name", HOSTS)
def test_the_agent_knows_what_was_published(name: str) -> None:
    document = agent_document(plan(name), SETTINGS)
    attestation, measurement = document["attestation"], measure_enclave(plan(name), SETTINGS)
    published = {"path": f"{FOLDER}/measurement.json", "digest": measurement.digest}
    assert attestation["measurement"] == published
    assert attestation["tee"] == str(plan(name).host.spec.tee)
    assert ("initdata" in attestation) is (name == "pod")
    if measurement.initdata is not None:
        digest = measurement.initdata.digest
        assert attestation["initdata"] == {"path": f"{FOLDER}/initdata.toml", "digest": digest}
    data = build_config_map(plan(name), SETTINGS, SURROUNDINGS)["data"]
    assert data["measurement.json"] == measurement.text.decode()


@pytest.mark.parametrize(
    ("name", "service"),
    [("none", None), ("pod", "http://127.0.0.1:8006"), ("node", "unix:///run/aa/api.sock")],
)
def test_evidence_is_asked_for_where_there_is_a_tee(name: str, service: str | None) -> None:
    document = agent_document(plan(name), SETTINGS)
    assert document["attestation"].get("service") == service
    rule = document["stages"]["cpu-attestation"]
    assert rule == {"evidence": True} if service else "nothing is confidential" in rule["skipped"]
    assert "skipped" in document["stages"]["gpu-attestation"]


@pytest.mark.parametrize("name", HOSTS)
def test_the_agent_alone_reaches_the_socket_of_the_node(name: str) -> None:
    pod = build_pod(plan(name), SETTINGS)["spec"]
    paths = [each["hostPath"] for each in pod["volumes"] if "hostPath" in each]
    assert paths == ([{"path": "/run/aa/api.sock", "type": "Socket"}] if name == "node" else [])
    holders = [
        container["name"]
        for container in (*pod["initContainers"], *pod["containers"])
        if any(each["name"] == "attestation" for each in container.get("volumeMounts", ()))
    ]
    assert holders == (["agent"] if name == "node" else [])


def test_a_tee_that_is_switched_off_is_not_asked() -> None:
    machine = host_of(**MACHINE)
    spec = profile(machine.spec, without_tee=True)
    without = plan_of(WEB, host=Host(metadata=machine.metadata, spec=spec))
    assert "service" not in agent_document(without, SETTINGS)["attestation"]
    pod = build_pod(without, SETTINGS)
    assert "runtimeClassName" not in pod["spec"]
    assert pod["spec"]["hostUsers"] is False
    assert not any(name.startswith("io.kata") for name in pod["metadata"]["annotations"])


def test_the_key_that_was_made_inside_is_bound() -> None:
    plain = plan("none")
    spec = plain.enclave.spec.model_copy(update={"signed_certificate": True})
    signed = replace(plain, enclave=plain.enclave.model_copy(update={"spec": spec}))
    assert "key" not in agent_document(plain, SETTINGS)["attestation"]
    bound = agent_document(signed, SETTINGS)["attestation"]["key"]
    assert bound == "/run/cloister/certificate/tls.spki"
