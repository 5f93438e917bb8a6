"""What the agent of an enclave attests by, on each kind of Host."""

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from cloister_crds.kinds import Host
from cloister_crds.lifecycle.admission.host_selection import profile
from cloister_crds.measurement import PUBLISHED, published
from cloister_crds.measurement.initdata import POD_DOCUMENT
from cloister_operator.enclave.guest_config.agent import agent_document
from cloister_operator.enclave.guest_config.measurement import unmeasured_document
from cloister_operator.enclave.plan import EnclavePlan
from tests.support.builders.enclave_plans import (
    SETTINGS,
    SURROUNDINGS,
    WEB,
    build_config_map,
    build_pod,
    host_of,
    measure_enclave,
    plan_of,
)

UNMEASURED = {"unmeasured.json"}
MACHINE = {"tee": "SNP", "teeUnit": "Pod", "runtimeClassName": "kata-qemu-snp"}
NODE = {"tee": "TDX", "teeUnit": "Node", "attestationService": "unix:///run/aa/api.sock"}
OTHER_REQUEST: dict[str, Any] = {
    "container": {"name": "other", "uid": "00000000-0000-0000-0000-000000000002"},
    "hostnames": ["www.example.org", "other.acme.containers.example"],
    "tag": "v2.0.0",
    "request": {
        "repo": "acme/web",
        "tag": "v2.0.0",
        "variables": [{"name": "COLOUR", "value": "red"}, {"name": "DOMAIN", "value": "x"}],
    },
}
"""Fields of an Enclave of the same file, for somebody else."""
HOSTS: dict[str, dict[str, Any]] = {"none": {}, "pod": MACHINE, "node": NODE}
SOURCES = {"pod": "http://127.0.0.1:8006"}


def plan(name: str) -> EnclavePlan:
    return plan_of(WEB, host=host_of(**HOSTS[name]))


@pytest.mark.parametrize("name", HOSTS)
def test_the_guest_takes_the_measurement_from_initdata_that_hardware_reports(name: str) -> None:
    """Where that is, no document says: an argument does, which policies bind."""
    pod = build_pod(plan(name), SETTINGS)["spec"]
    (keep,) = (each for each in pod["initContainers"] if each["name"] == "keep")
    assert keep["command"][-2:] == ["-evidence", SOURCES.get(name, "none")]
    (published,) = (each for each in pod["volumes"] if each["name"] == "measurement")
    keys = {each["key"] for each in published["configMap"]["items"]}
    assert keys == {"measurement.json"} | ({"initdata.toml"} if name == "pod" else set())


@pytest.mark.parametrize("name", HOSTS)
def test_the_measurement_names_each_document(name: str) -> None:
    config_map = build_config_map(plan(name), SETTINGS, SURROUNDINGS)
    named = measure_enclave(plan(name), SETTINGS).document.documents
    kept = published(config_map["data"])
    assert kept is not None
    assert {key: digest(text) for key, text in kept.documents.items()} == named
    texts = {
        key: text for key, text in config_map["data"].items() if key not in PUBLISHED | UNMEASURED
    }
    # That of the Pod is in the initdata alone.
    assert texts.keys() | ({POD_DOCUMENT} if name == "pod" else set()) == named.keys()


def test_what_differs_from_request_to_request_is_not_measured() -> None:
    one, other = plan("pod"), plan_of(WEB, host=host_of(**MACHINE), **OTHER_REQUEST)
    assert measure_enclave(one, SETTINGS).text == measure_enclave(other, SETTINGS).text
    told = [unmeasured_document(each, SURROUNDINGS) for each in (one, other)]
    assert told[0] != told[1]


def digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


@pytest.mark.parametrize(
    ("name", "service"),
    [
        ("none", None),
        ("pod", "http://127.0.0.1:8006"),
        ("node", "unix:///run/aa/api.sock"),
    ],
)
def test_evidence_is_asked_for_where_something_measures(name: str, service: str | None) -> None:
    document = agent_document(plan(name))
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
    assert "service" not in agent_document(without)["attestation"]
    pod = build_pod(without, SETTINGS)
    assert "runtimeClassName" not in pod["spec"]
    assert pod["spec"]["hostUsers"] is False
    assert not any(name.startswith("io.kata") for name in pod["metadata"]["annotations"])


def test_the_key_that_was_made_inside_is_bound() -> None:
    plain = plan("none")
    spec = plain.enclave.spec.model_copy(update={"signed_certificate": True})
    signed = replace(plain, enclave=plain.enclave.model_copy(update={"spec": spec}))
    bound = [agent_document(each)["attestation"]["bindsKey"] for each in (plain, signed)]
    assert bound == [False, True]
