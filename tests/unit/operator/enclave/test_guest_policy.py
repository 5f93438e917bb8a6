"""What the rules for a machine's agent know of a Pod."""

import copy
from typing import Any

import pytest

from cloister_crds.config import ContainerConfig
from cloister_crds.measurement.initdata import POD_DOCUMENT
from cloister_operator.enclave.guest_policy import pod_data
from cloister_operator.enclave.plan import EnclavePlan
from cloister_operator.enclave.pod.pod import pod_spec
from tests.support.builders.enclave_plans import (
    SETTINGS,
    WEB,
    WORKER,
    config_of,
    host_of,
    measure_enclave,
    measured_documents,
    plan_of,
)

MACHINE = {"tee": "SNP", "teeUnit": "Pod", "runtimeClassName": "kata-qemu-snp"}


def plan(**changes: Any) -> EnclavePlan:
    return plan_of(WEB, WORKER, host=host_of(**MACHINE), **changes)


def described(given: EnclavePlan) -> dict[str, dict[str, Any]]:
    found = pod_data(given, pod_spec(given, SETTINGS))
    return {each["name"]: each for each in found["containers"]}


def test_all_containers_are_described_in_their_order() -> None:
    given = plan(signedCertificate=True)
    spec = pod_spec(given, SETTINGS)
    manifests = [*spec["initContainers"], *spec["containers"]]
    found = pod_data(given, spec)["containers"]
    names = ["keep", "net", "agent", "certificate", "web", "worker-1", "shim"]
    assert [each["name"] for each in found] == [each["name"] for each in manifests] == names
    for manifest, each in zip(manifests, found, strict=True):
        assert each["image"] == manifest["image"]
        assert each["args"] == manifest["command"]
        places = [mount["mountPath"] for mount in manifest["volumeMounts"]]
        assert [mount["destination"] for mount in each["mounts"]] == places


def test_what_differs_from_request_to_request_is_not_described() -> None:
    one = plan()
    other = plan(
        request={
            "repo": "acme/web",
            "tag": "v1.0.0",
            "variables": [{"name": "COLOUR", "value": "red"}, {"name": "ABSENT", "value": "x"}],
        },
        hostnames=["other.example"],
        container={"name": "other", "uid": "00000000-0000-0000-0000-000000000002"},
        pullSecrets=["pull"],
    )
    documents = [measured_documents(each, SETTINGS)[POD_DOCUMENT] for each in (one, other)]
    assert documents[0] == documents[1]
    assert measure_enclave(one, SETTINGS).text == measure_enclave(other, SETTINGS).text


def test_variables_are_fixed_where_file_or_image_fix_them() -> None:
    image: dict[str, object] = {
        "container": "Worker_1",
        "image": WORKER.image,
        "env": ["HOME=/data", "API_KEY=default", "PATH=/bin"],
        "workingDir": "/app",
    }
    found = described(plan(images=(image,)))
    web, worker = found["web"], found["worker-1"]
    assert web["environment"] == {
        "GREETING": "$(HOME) costs $5",
        "NVIDIA_VISIBLE_DEVICES": "void",
    }
    assert web["variables"] == ["ABSENT", "COLOUR", "DOMAIN", "PATH"]
    assert worker["environment"] == {
        "HOME": "/data",
        "PATH": "/bin",
        "NVIDIA_VISIBLE_DEVICES": "void",
    }
    assert worker["variables"] == ["API_KEY"]
    assert worker["workingDir"] == "/srv"


def test_only_debug_enclaves_show_what_they_print() -> None:
    assert not any(each["logs"] for each in described(plan()).values())
    assert all(each["logs"] for each in described(plan(debug=True)).values())


def test_gpus_are_counted_where_they_are_assigned() -> None:
    first = ContainerConfig(name="first", image=WEB.image, gpus="all")
    given = plan_of(
        config=config_of(first, WEB, gpus=1),
        host=host_of(**MACHINE, gpu={"resource": "nvidia.com/pgpu", "counts": [1]}),
        summary={"cpus": 2, "memoryMB": 8192, "gpus": 1},
    )
    found = described(given)
    assert {name: each["gpus"] for name, each in found.items() if each["gpus"]} == {"first": 1}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda spec: mount(spec).update(subPath="x"), "part x of volume service"),
        (lambda spec: volume(spec).update(emptyDir={}), "neither memory nor files"),
        (lambda spec: capabilities(spec).update(drop=[]), "container web keeps capabilities"),
        (
            lambda spec: container(spec)["securityContext"].update(allowPrivilegeEscalation=True),
            "container web keeps capabilities",
        ),
    ],
)
def test_what_rules_cannot_describe_is_an_error(change: Any, problem: str) -> None:
    given = plan()
    spec = copy.deepcopy(pod_spec(given, SETTINGS))
    change(spec)
    with pytest.raises(ValueError, match=problem):
        pod_data(given, spec)


def container(spec: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in spec["containers"] if each["name"] == "web")
    return found


def mount(spec: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = container(spec)["volumeMounts"][0]
    return found


def volume(spec: dict[str, Any]) -> dict[str, Any]:
    name = mount(spec)["name"]
    found: dict[str, Any] = next(each for each in spec["volumes"] if each["name"] == name)
    return found


def capabilities(spec: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = container(spec)["securityContext"]["capabilities"]
    return found
