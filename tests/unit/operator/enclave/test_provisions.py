"""What a Pod takes from its Host beside processors and memory: GPUs, devices, model weights."""

from dataclasses import replace
from typing import Any

import pytest

from cloister_crds.config import ContainerConfig, EnvEntry, ModelSpec
from cloister_crds.kinds import Host
from cloister_operator.enclave.container import build_gpu_claims
from cloister_operator.enclave.network.addresses import ClusterNetwork
from cloister_operator.enclave.plan import EnclavePlan
from cloister_operator.enclave.pod.pod import unenforced
from tests.support.builders.enclave_plans import (
    SETTINGS,
    WEB,
    build_config_map,
    build_pod,
    config_of,
    host_of,
    of_file,
    plan_of,
)

GPU_HOST = host_of(gpu={"resource": "nvidia.com/gpu", "counts": [1, 8], "type": "H100"})
DRA_HOST = host_of(gpu={"deviceClass": "gpu.example.com", "counts": [1, 8], "type": "H100"})
VOID = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
ROOT, UUID = "ab" * 32, "6493760e-f831-5d28-81b4-39e665a8095a"
MIB = 1024 * 1024


def with_gpus(name: str, gpus: Any, **more: Any) -> ContainerConfig:
    """Make a container with GPUs; None = without."""
    runtime = None if gpus is None else "nvidia"
    return WEB.model_copy(update={"name": name, "gpus": gpus, "runtime": runtime, **more})


def gpu_plan(count: int, *containers: ContainerConfig, host: Host = GPU_HOST) -> EnclavePlan:
    """Plan an enclave with `count` GPUs."""
    plan = plan_of(*containers, host=host)
    summary = plan.enclave.spec.summary.model_copy(update={"gpus": count})
    spec = plan.enclave.spec.model_copy(update={"summary": summary})
    return replace(plan, enclave=plan.enclave.model_copy(update={"spec": spec}))


def gpu_pod(count: int, *containers: ContainerConfig) -> dict[str, Any]:
    """Build the Pod of an enclave with `count` GPUs."""
    built: dict[str, Any] = build_pod(gpu_plan(count, *containers), SETTINGS)["spec"]
    return built


def limits(container: dict[str, Any]) -> dict[str, str]:
    """Return the limits of a container of a Pod."""
    found: dict[str, str] = container.get("resources", {}).get("limits", {})
    return found


@pytest.mark.parametrize(
    ("count", "asked", "want", "held"),
    [
        (1, ["all"], ["1"], None),
        (8, ["all", None], ["8", None], None),
        (8, [(0, 1, 2, 3), (4, 5, 6, 7)], ["4", "4"], None),
        (8, [(0, 1), 2], ["2", "2"], "4"),
        (8, [None], [None], "8"),
        (0, [None], [None], None),
    ],
)
def test_gpus_go_to_the_containers_that_have_them(
    count: int, asked: list[Any], want: list[str | None], held: str | None
) -> None:
    containers = [with_gpus(f"c{number}", gpus) for number, gpus in enumerate(asked)]
    pod = gpu_pod(count, *containers)
    got = [limits(each).get("nvidia.com/gpu") for each in of_file({"spec": pod})]
    assert got == want
    assert limits(pod["initContainers"][0]).get("nvidia.com/gpu") == held
    assert all("nvidia.com/gpu" not in limits(each) for each in pod["initContainers"][1:])
    assert "nvidia.com/gpu" not in limits(pod["containers"][-1])


@pytest.mark.parametrize(
    ("count", "asked", "want", "counts"),
    [
        (2, ["all", "all", None], [["gpus-0"], ["gpus-0"], []], [2]),
        (8, ["all", (6, 7)], [["gpus-0", "gpus-1"], ["gpus-1"]], [6, 2]),
        (4, [(0,)], [["gpus-0"]], [1, 3]),
        (1, [None], [[]], [1]),
        (0, [None], [[]], []),
    ],
)
def test_containers_share_gpus_by_claims_of_the_pod(
    count: int, asked: list[Any], want: list[list[str]], counts: list[int]
) -> None:
    containers = [with_gpus(f"c{number}", gpus) for number, gpus in enumerate(asked)]
    plan = gpu_plan(count, *containers, host=DRA_HOST)
    pod = build_pod(plan, SETTINGS)["spec"]
    claims = build_gpu_claims(plan)
    requests = [claim["spec"]["devices"]["requests"] for claim in claims]
    assert [request["exactly"] for (request,) in requests] == [
        {"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": number}
        for number in counts
    ]
    assert pod.get("resourceClaims", []) == [
        {"name": f"gpus-{number}", "resourceClaimName": claim["metadata"]["name"]}
        for number, claim in enumerate(claims)
    ]
    assert all(each["metadata"]["ownerReferences"] for each in claims)
    used = {
        each["name"]: [claim["name"] for claim in each["resources"].get("claims", [])]
        for each in pod["containers"]
    }
    assert [used.pop(each.name) for each in containers] == want
    assert not any(used.values()), "ours have none"
    for each in of_file({"spec": pod}):
        assert VOID in each["env"], "only the driver adds GPUs"
    everything = [*pod["initContainers"], *pod["containers"]]
    assert all(set(limits(each)) <= {"memory", "ephemeral-storage"} for each in everything)


def test_gpus_of_a_device_plugin_are_no_claims() -> None:
    plan = gpu_plan(1, with_gpus("a", "all"))
    assert build_gpu_claims(plan) == []
    assert "resourceClaims" not in build_pod(plan, SETTINGS)["spec"]


def test_a_container_without_gpus_sees_none() -> None:
    """Images for CUDA set ``all``, which would be the GPUs of every enclave of the node."""
    greedy = (EnvEntry(name="NVIDIA_VISIBLE_DEVICES", value="all"),)
    pod = gpu_pod(1, with_gpus("a", "all", env=greedy), with_gpus("b", None, env=greedy))
    all_of_them, none = of_file({"spec": pod})
    assert all_of_them.get("env", []) == []
    assert none["env"] == [VOID]
    config = config_of(with_gpus("a", "all", env=greedy), with_gpus("b", None))
    assert unenforced(config) == ("containers[0].env.NVIDIA_VISIBLE_DEVICES",)


def test_a_host_that_declares_no_gpus_hides_those_of_its_nodes() -> None:
    built = of_file(build_pod(plan_of(with_gpus("a", None)), SETTINGS))[0]
    assert VOID in built["env"]


def test_every_container_has_a_limit_of_the_nodes_disk() -> None:
    """Ours too; a volume on disk would need a limit of its own, and there is none."""
    host = host_of(sizing={"ephemeralStorageMB": 64})
    plan = plan_of(WEB, host=host, debug=True, sshKeys=[{"name": "me", "publicKey": "ssh-rsa AA"}])
    pod = build_pod(plan, SETTINGS)["spec"]
    for container in [*pod["initContainers"], *pod["containers"]]:
        resources = container["resources"]
        assert resources["limits"]["ephemeral-storage"] == "64Mi", container["name"]
        assert resources["requests"]["ephemeral-storage"] == "64Mi", container["name"]
    scratch = [each["emptyDir"] for each in pod["volumes"] if "emptyDir" in each]
    assert scratch
    assert all(each["medium"] == "Memory" and each["sizeLimit"] for each in scratch)


def test_devices_are_resources_of_the_host() -> None:
    host = host_of(
        devices=[
            {"path": "/dev/kvm", "resource": "devices.example/kvm"},
            {"path": "/dev/fuse", "resource": "devices.example/fuse"},
        ]
    )
    asked = ("/dev/kvm", "/dev/fuse:/dev/fuse:rwm", "/dev/kvm:/dev/kvm")
    container = WEB.model_copy(update={"devices": asked, "memory": 64 * MIB})
    built = of_file(build_pod(plan_of(container, host=host), SETTINGS))[0]
    assert built["resources"] == {
        "limits": {
            "devices.example/kvm": "1",
            "devices.example/fuse": "1",
            "memory": str(64 * MIB),
            "ephemeral-storage": "10240Mi",
        },
        "requests": {"memory": "0", "ephemeral-storage": "64Mi"},
    }


def model(name: str, root: str, offset: int) -> ModelSpec:
    """Make a model of a file."""
    return ModelSpec(
        name=name,
        repo=f"example/{name}",
        commit="0" * 40,
        mpk=f"{root}_{offset}_{UUID}",
        root_hash=root,
        offset=offset,
        uuid=UUID,
    )


@pytest.mark.parametrize(
    ("store", "volume", "recursive"),
    [
        (
            {"directory": "/srv/models"},
            {"hostPath": {"path": "/srv/models", "type": "Directory"}},
            "Enabled",
        ),
        (
            {"claim": "weights"},
            {"persistentVolumeClaim": {"claimName": "weights", "readOnly": True}},
            None,
        ),
    ],
)
def test_models_are_verified_before_the_containers(
    store: dict[str, str], volume: dict[str, Any], recursive: str | None
) -> None:
    models = (model("tiny", ROOT, 4096), model("large", "cd" * 32, 4096 * 1000))
    config = config_of(WEB, with_gpus("db", None), models=models)
    plan = plan_of(config=config, host=host_of(models=store))
    pod = build_pod(plan, SETTINGS)["spec"]
    first = pod["initContainers"][-1]
    assert first["name"] == "models"
    assert first["securityContext"]["runAsUser"] == 65007
    assert first["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "restartPolicy" not in first
    mounts = {each["mountPath"]: each for each in first["volumeMounts"]}
    assert mounts["/run/cloister/store"]["readOnly"]
    assert mounts["/run/cloister/store"].get("recursiveReadOnly") == recursive
    assert {"name": "models-store", **volume} in pod["volumes"]
    for built in of_file({"spec": pod}):
        (mount,) = [each for each in built["volumeMounts"] if each["name"] == "models"]
        assert mount == {"name": "models", "mountPath": "/cloister/mpk", "readOnly": True}
        assert all(each["name"] != "models-store" for each in built["volumeMounts"])
    assert (
        '"mpk":"' + models[1].mpk
        in build_config_map(plan, SETTINGS, ClusterNetwork())["data"]["models.json"]
    )


def test_weights_take_memory_beside_that_of_the_file() -> None:
    """Both images and 64 MiB for each: 4096 bytes and 1000 blocks are 4 MiB together.

    The sidecars' 128 MiB stand beside both.
    """
    models = (model("tiny", ROOT, 4096), model("large", "cd" * 32, 4096 * 1000))
    host = host_of(models={"directory": "/srv/models"}, overcommit={"memoryPercent": 50})
    plan = plan_of(config=config_of(WEB, models=models), host=host)
    pod = build_pod(plan, SETTINGS)["spec"]
    assert pod["resources"]["limits"]["memory"] == f"{8192 + 128 + 132}Mi"
    assert pod["resources"]["requests"]["memory"] == f"{4096 + 128 + 132}Mi"
    (volume,) = [each for each in pod["volumes"] if each["name"] == "models"]
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": str(132 * MIB)}
