"""The life of a machine under its rules: order, number, programs, logs, files, and all else."""

import copy
import functools
import json
from typing import Any

import pytest

from cloister_crds.config import Restart
from cloister_operator.enclave.guest_policy import SANDBOX
from tests.support.builders.enclave_plans import WEB
from tests.support.builders.guest_policies import (
    CREATE,
    PLANS,
    START,
    boot,
    lives,
    plan,
    policy_of,
    refused,
    runtime_of,
)
from tests.support.rego_engines import ENGINES
from tests.support.stand_ins.kata_runtime import Request

pytestmark = pytest.mark.programs("rego-judge")

ONCE = {
    "AddARPNeighborsRequest",
    "CreateSandboxRequest",
    "UpdateInterfaceRequest",
    "UpdateRoutesRequest",
}
"""Requests that a runtime sends before anything of the Pod runs."""


@pytest.mark.parametrize("engine", ENGINES)
def test_a_container_that_ended_starts_again_once(engine: str) -> None:
    given, name = plan(), "worker-1"
    runtime = runtime_of(given)
    again = list(runtime.start(name, 1))
    verdicts = lives(engine, given, again)
    # The first one still runs: the second may be made, and does not start.
    starts = [ok for each, ok in zip(again, verdicts, strict=True) if each.endpoint == START]
    assert starts == [False]
    assert all(lives(engine, given, [*runtime.end(name), *again]))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_container_that_is_not_restarted_runs_once(engine: str) -> None:
    given = plan()
    assert WEB.restart is Restart.NO
    runtime = runtime_of(given)
    verdicts = lives(engine, given, [*runtime.end("web"), *runtime.start("web", 1)])
    assert verdicts[-1] is False
    assert all(verdicts[:-1])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_start_is_of_what_was_made_and_once(engine: str) -> None:
    given = plan()
    own = {"container_id": runtime_of(given).id_of("web")}
    foreign = {"container_id": "0" * 64}
    assert lives(engine, given, [Request(START, own), Request(START, foreign)]) == [False, False]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_container_has_an_id_of_its_own(engine: str) -> None:
    given = plan()
    runtime, requests = boot(given)
    own, sandbox = runtime.id_of("worker-1"), runtime.sandbox_id
    first, last = (
        next(at for at, each in enumerate(requests) if is_creation(each, of))
        for of in (sandbox, own)
    )
    wrong = [
        *(renamed(requests[last], own, each) for each in ("evil", "a" * 63, sandbox)),
        # It would be the second one that this id stands for.
        renamed(requests[last], own, runtime.id_of("agent")),
        renamed(requests[last], f"/{own}/rootfs", "/other/rootfs"),
    ]
    assert refused(engine, given, [*requests[:last], *wrong, requests[last]]) == wrong
    assert lives(engine, given, [requests[last]]) == [False]
    other = renamed(requests[first], sandbox, "0" * 64)
    other.input["OCI"]["Annotations"]["io.kubernetes.cri.sandbox-id"] = sandbox
    assert refused(engine, given, [*requests[:first], other, requests[first]]) == [other]


def is_creation(request: Request, own: str) -> bool:
    return request.endpoint == CREATE and request.input["container_id"] == own


def renamed(request: Request, old: str, new: str) -> Request:
    """Return a request in which an id is another one wherever it is."""
    return Request(request.endpoint, json.loads(json.dumps(request.input).replace(old, new)))


@pytest.mark.parametrize("engine", ENGINES)
def test_containers_are_made_in_the_order_of_the_pod(engine: str) -> None:
    given = plan()
    runtime, requests = boot(given)
    names = [SANDBOX, *(each["name"] for each in runtime.containers)]
    created = {
        name: next(
            each
            for each in requests
            if each.endpoint == CREATE and each.input["container_id"] == runtime.id_of(name)
        )
        for name in names
    }
    sandbox = next(each for each in requests if each.endpoint == "CreateSandboxRequest")
    before = list(created.values())
    assert refused(engine, given, before) == before
    for number, name in enumerate(names[:-1]):
        done = [sandbox, *(created[each] for each in names[:number])]
        early = [created[each] for each in names[number + 1 :]]
        assert refused(engine, given, [*done, *early, created[name]]) == early


@pytest.mark.parametrize("engine", ENGINES)
def test_a_machine_has_one_sandbox(engine: str) -> None:
    given = plan()
    _, requests = boot(given)
    again = [each for each in requests if each.endpoint in ONCE]
    assert lives(engine, given, again) == [False] * len(ONCE)


@pytest.mark.parametrize("engine", ENGINES)
def test_only_hooks_are_executed_where_they_belong(engine: str) -> None:
    given = plan()
    runtime = runtime_of(given)
    stop = ["/.cloister/bin/guest", "stop", "-spec", "/.cloister/spec/container-0.json"]
    hook = runtime.exec("web", stop)
    assert lives(engine, given, [hook]) == [True]
    wrong = [
        runtime.exec("web", ["/bin/sh"]),
        runtime.exec("web", [*stop, "-x"]),
        runtime.exec("worker-1", stop),
        runtime.exec("agent", stop),
        runtime.exec("web", ["/guest", "install", "/.cloister"]),
        changed(hook, ("process", "Terminal"), value=True),
        changed(hook, ("process", "Env"), value=["LD_PRELOAD=/x"]),
        changed(hook, ("process", "User", "UID"), value=1),
        changed(hook, ("process", "Cwd"), value="/tmp"),
        changed(hook, ("process", "NoNewPrivileges"), value=False),
        changed(hook, ("process", "Capabilities"), value={"Bounding": ["CAP_SYS_MODULE"]}),
        changed(hook, ("string_user",), value={"uid": "0", "gid": "0", "additionalGids": []}),
        changed(hook, ("stdin_port",), value=1),
        changed(hook, ("stdout_port",), value=1),
        changed(hook, ("container_id",), value="0" * 64),
    ]
    assert lives(engine, given, wrong) == [False] * len(wrong)
    assert lives(engine, given, [*runtime.end("web"), hook])[-1] is False
    _, requests = boot(given)
    started = Request(START, {"container_id": runtime.id_of("web")})
    early = [hook if each == started else each for each in requests]
    assert refused(engine, given, early)[0] == hook


def changed(request: Request, path: tuple[str, ...], *, value: object) -> Request:
    whole = copy.deepcopy(request.input)
    functools.reduce(lambda at, key: at[key], path[:-1], whole)[path[-1]] = value
    return Request(request.endpoint, whole)


@pytest.mark.parametrize("engine", ENGINES)
def test_logs_are_those_of_debug_enclaves(engine: str) -> None:
    read = {"exec_id": "", "len": 4096}
    for debug in (False, True):
        given = plan(debug=debug)
        own = runtime_of(given).id_of("web")
        asked = [
            Request("ReadStreamRequest", {"container_id": own, **read}),
            Request("ReadStreamRequest", {"container_id": "0" * 64, **read}),
            Request("WriteStreamRequest", {"container_id": own, "exec_id": "", "data": [1]}),
        ]
        assert lives(engine, given, asked) == [debug, False, False]


VFIO = {"id": "vfio0", "type_": "vfio-pci-gk", "vm_path": "", "options": []}
GPU = {**VFIO, "container_path": "/dev/vfio/devices/vfio0"}
CDI = "cdi.k8s.io/vfio0"


@pytest.mark.parametrize("engine", ENGINES)
def test_gpus_are_those_that_were_assigned(engine: str) -> None:
    given = PLANS["gpus"]()
    runtime, requests = boot(given)
    at = next(at for at, each in enumerate(requests) if is_creation(each, runtime.id_of("web")))
    good = changed(requests[at], ("devices",), value=[GPU])
    good.input["OCI"]["Annotations"][CDI] = "nvidia.com/gpu=0"
    good.input["OCI"]["Process"]["Env"].append("PCI_RESOURCE_NVIDIA_COM_PGPU=0000:41:00.0")
    wrong = [
        changed(good, ("devices",), value=[GPU, {**GPU, "id": "vfio1"}]),
        changed(good, ("devices",), value=[{**GPU, "type_": "blk"}]),
        changed(good, ("devices",), value=[{**GPU, "container_path": "/dev/vda"}]),
        changed(good, ("devices",), value=[{**GPU, "vm_path": "/dev/vda"}]),
        changed(good, ("OCI", "Linux", "Devices"), value=[{"Path": "/dev/mem"}]),
        changed(good, ("OCI", "Annotations", CDI), value="evil.example/x=0"),
        changed(good, ("OCI", "Annotations", "cdi.k8s.io/x"), value="nvidia.com/gpu=0"),
    ]
    assert refused(engine, given, [*requests[:at], *wrong, good, *requests[at + 1 :]]) == wrong


OTHERS: dict[str, dict[str, Any]] = {
    "AddSwapRequest": {"PCIPath": [1]},
    "CloseStdinRequest": {"container_id": "a", "exec_id": ""},
    "GetDiagnosticDataRequest": {},
    "GetIPTablesRequest": {"is_ipv6": False},
    "GetMetricsRequest": {},
    "ListInterfacesRequest": {},
    "ListRoutesRequest": {},
    "MemAgentCompactConfig": {},
    "MemAgentMemcgConfig": {},
    "MemHotplugByProbeRequest": {"memHotplugProbeAddr": [1]},
    "PauseContainerRequest": {"container_id": "a"},
    "ReseedRandomDevRequest": {"data": [0]},
    "ResizeVolumeRequest": {"volume_guest_path": "/run", "size": 1},
    "ResumeContainerRequest": {"container_id": "a"},
    "SetGuestDateTimeRequest": {"Sec": 0, "Usec": 0},
    "SetIPTablesRequest": {"is_ipv6": False, "data": []},
    "SetPolicyRequest": {"policy": "package agent_policy\ndefault SetPolicyRequest := true\n"},
    "TtyWinResizeRequest": {"container_id": "a", "exec_id": "", "row": 1, "column": 1},
    "UpdateContainerRequest": {"container_id": "a", "resources": {}},
    "UpdateEphemeralMountsRequest": {"storages": []},
    "VolumeStatsRequest": {"volume_guest_path": "/run"},
}
"""Requests that no enclave needs."""


@pytest.mark.parametrize("engine", ENGINES)
def test_what_no_enclave_needs_is_refused(engine: str) -> None:
    asked = [Request(endpoint, fields) for endpoint, fields in OTHERS.items()]
    assert lives(engine, plan(), asked) == [False] * len(asked)
    assert ENGINES[engine](policy_of(plan()), [Request("AllowRequestsFailingPolicy", {})]) == [
        False
    ]


SHARED = "/run/kata-containers/shared/containers"
TIME = "..2026_11_27_06_00_00.123456789"
SPEC = f"{SHARED}/{'a' * 64}-0123456789abcdef-spec"
COPIES: dict[str, tuple[str, str, str | None]] = {
    "a file of the machine": ("/etc/passwd", "Regular", None),
    "the machine's own guest": ("/usr/bin/kata-agent", "Regular", None),
    "a root file system": (f"/run/kata-containers/{'a' * 64}/rootfs/bin/sh", "Regular", None),
    "a root file system below": (f"{SHARED}/{'a' * 64}/rootfs/bin/sh", "Regular", None),
    "a path that climbs": (f"{SPEC}/../../../../../etc/passwd", "Regular", None),
    "a file that no mount has": (f"{SPEC}/{TIME}/evil.json", "Regular", None),
    "a document in the wrong folder": (f"{SPEC}/container-0.json", "Regular", None),
    "a document deeper": (f"{SPEC}/{TIME}/x/container-0.json", "Regular", None),
    "a mount that no container has": (
        f"{SHARED}/{'a' * 64}-0123456789abcdef-evil",
        "Regular",
        None,
    ),
    "a folder as a file": (SPEC, "Regular", None),
    "a folder as a link": (SPEC, "Symlink", "/etc"),
    "hosts as a folder": (f"{SHARED}/{'a' * 64}-0123456789abcdef-hosts", "Directory", None),
    "hosts as a link": (f"{SHARED}/{'a' * 64}-0123456789abcdef-hosts", "Symlink", "/etc/shadow"),
    "a file in hosts": (f"{SHARED}/{'a' * 64}-0123456789abcdef-hosts/x", "Regular", None),
    "another folder": (f"{SPEC}/x", "Directory", None),
    "a link out": (f"{SPEC}/..data", "Symlink", "/run"),
    "a link up": (f"{SPEC}/..data", "Symlink", ".."),
    "a link that climbs": (f"{SPEC}/..data", "Symlink", f"{TIME}/../.."),
    "a document that leads out": (f"{SPEC}/container-0.json", "Symlink", "/etc/shadow"),
    "a document that leads to another": (
        f"{SPEC}/container-0.json",
        "Symlink",
        "..data/container-1.json",
    ),
    "a link in the folder": (f"{SPEC}/{TIME}/container-0.json", "Symlink", "/etc/shadow"),
    "a link without a target": (f"{SPEC}/..data", "Symlink", None),
    "a folder's time as a file": (f"{SPEC}/{TIME}", "Regular", None),
    "a folder's time as a link": (f"{SPEC}/{TIME}", "Symlink", "/etc"),
    "a document in another folder": (f"{SPEC}/x/container-0.json", "Regular", None),
    "a document as a folder": (f"{SPEC}/{TIME}/container-0.json/x", "Regular", None),
    "a document beside its link": (
        f"{SPEC}/container-0.json",
        "Regular",
        "..data/container-0.json",
    ),
    "a device": (f"{SPEC}/{TIME}/container-0.json", "Unknown", None),
    "short digits": (f"{SHARED}/{'a' * 64}-0123-spec/{TIME}/container-0.json", "Regular", None),
    "a short id": (f"{SHARED}/abc-0123456789abcdef-spec/{TIME}/container-0.json", "Regular", None),
    "a line break": (f"{SPEC}/{TIME}/container-0.json\n", "Regular", None),
    "a line before": (f"\n{SPEC}/{TIME}/container-0.json", "Regular", None),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_files_of_the_host_come_where_documents_are(engine: str) -> None:
    given = plan()
    asked = [
        Request("CopyFileRequest", {"path": path, "file_type": kind, "symlink_target": target})
        for path, kind, target in COPIES.values()
    ]
    verdicts = lives(engine, given, asked)
    assert [name for name, ok in zip(COPIES, verdicts, strict=True) if ok] == []
    rotated = Request(
        "CopyFileRequest",
        {"path": f"{SPEC}/{TIME}/container-0.json", "file_type": "Regular", "symlink_target": None},
    )
    # As the runtime before CVE-2026-41326 was mended described a copy, without its type.
    untyped = Request("CopyFileRequest", {"path": rotated.input["path"], "symlink_src": ""})
    assert lives(engine, given, [rotated, untyped]) == [True, False]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_store_of_models_holds_files_alone(engine: str) -> None:
    given = PLANS["models"]()
    store = f"{SHARED}/{'a' * 64}-0123456789abcdef-store"
    asked = [
        Request("CopyFileRequest", {"path": f"{store}{path}", "file_type": kind})
        for path, kind in (
            ("/mpk-1.img", "Regular"),
            ("/a/b", "Regular"),
            ("/../b", "Regular"),
            ("/a/./b", "Regular"),
            ("/a//b", "Regular"),
            ("/a", "Symlink"),
        )
    ]
    assert lives(engine, given, asked) == [True, True, False, False, False, False]
