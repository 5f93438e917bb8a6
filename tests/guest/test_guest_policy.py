"""The rules for the agent of a machine, judged by the engines that read them.

`tests/data/guest_policy/refused.yaml` has the requests that are refused; what is admitted is what
Kata's runtime sends for the very Pod (a stand-in: `tests.support.stand_ins.kata_runtime`).
"""

import copy
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloister_crds.config import ModelSpec, Restart
from cloister_crds.measurement.guest_rules import pod_text, policy_text
from cloister_operator.enclave.guest_policy.pod_data import SANDBOX, pod_data
from cloister_operator.enclave.plan import EnclavePlan
from cloister_operator.enclave.pod_manifest import build_pod
from tests.support.builders.enclave_plans import (
    SETTINGS,
    WEB,
    WORKER,
    config_of,
    host_of,
    plan_of,
)
from tests.support.rego_engines import ENGINES, by_opa
from tests.support.stand_ins.kata_runtime import KataRuntime, Request

pytestmark = pytest.mark.programs("rego-judge")

DATA = Path(__file__).parents[1] / "data" / "guest_policy"
REFUSED: list[dict[str, Any]] = yaml.safe_load((DATA / "refused.yaml").read_text())
SNP = {"tee": "SNP", "teeUnit": "Pod", "runtimeClassName": "kata-qemu-snp"}
IMAGE = {"env": ["HOME=/data", "PATH=/bin", "API_KEY=default"], "workingDir": "/app"}
CREATE, START, REMOVE = "CreateContainerRequest", "StartContainerRequest", "RemoveContainerRequest"
TINY = ModelSpec(
    name="tiny",
    repo="example/tiny",
    commit="0" * 40,
    mpk=f"{'ab' * 32}_4096_11111111-2222-3333-4444-555555555555",
    root_hash="ab" * 32,
    offset=4096,
    uuid="11111111-2222-3333-4444-555555555555",
)


def plan(**changes: Any) -> EnclavePlan:
    """Build a plan with a rich container, whose image has an environment and a directory."""
    image: dict[str, object] = {"container": "Worker_1", "image": WORKER.image, **IMAGE}
    return plan_of(WEB, WORKER, host=host_of(**SNP), images=(image,), **changes)


PLANS: dict[str, Callable[[], EnclavePlan]] = {
    "small": functools.partial(plan_of, WEB, host=host_of(**SNP)),
    "rich": plan,
    "certificate": functools.partial(plan, signedCertificate=True),
    "shells": functools.partial(
        plan, debug=True, sshKeys=[{"name": "me", "publicKey": "ssh-ed25519 AAAA me@home"}]
    ),
    "models": functools.partial(
        plan_of,
        config=config_of(WEB, models=(TINY,)),
        host=host_of(**SNP, models={"directory": "/srv/models"}),
    ),
}


def policy_of(given: EnclavePlan) -> str:
    spec = build_pod(given, SETTINGS)["spec"]
    return policy_text(pod_text(pod_data(given, spec)))


def runtime_of(given: EnclavePlan, *, metadata: bool = False) -> KataRuntime:
    facts = {each.container.lower().replace("_", "-"): each for each in given.enclave.spec.images}
    return KataRuntime(
        build_pod(given, SETTINGS),
        image_env={name: list(each.env) for name, each in facts.items()},
        image_directory={name: each.working_dir for name, each in facts.items()},
        metadata=metadata,
    )


def refused(engine: str, given: EnclavePlan, requests: list[Request]) -> list[Request]:
    """Return the requests that are refused."""
    verdicts = ENGINES[engine](policy_of(given), requests)
    return [each for each, admitted in zip(requests, verdicts, strict=True) if not admitted]


def boot(given: EnclavePlan) -> tuple[KataRuntime, list[Request]]:
    runtime = runtime_of(given)
    return runtime, list(runtime.boot())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("metadata", [False, True], ids=["plain", "metadata"])
@pytest.mark.parametrize("name", PLANS)
def test_an_enclave_starts(engine: str, name: str, *, metadata: bool) -> None:
    given = PLANS[name]()
    runtime = runtime_of(given, metadata=metadata)
    requests = [*runtime.boot(), Request("StatsContainerRequest", {"container_id": "a" * 64})]
    assert refused(engine, given, requests) == []
    assert sum(each.endpoint == CREATE for each in requests) == len(runtime.containers) + 1


def damaged(case: dict[str, Any], request: Request, runtime: KataRuntime) -> Request:
    """Return a request with one place changed."""
    changed = copy.deepcopy(request.input)
    *path, last = case["at"]
    place: Any = changed
    for key in path:
        place = place[index_of(place, key)]
    value = filled(case.get("set", case.get("add")), request, runtime)
    if "remove" in case:
        del place[index_of(place, last)]
    elif "add" in case:
        place[index_of(place, last)] = [*place[index_of(place, last)], value]
    elif value == "reversed":
        place[last] = place[last][::-1]
    else:
        place[index_of(place, last)] = value
    assert changed != request.input
    return Request(request.endpoint, changed)


def index_of(place: Any, key: Any) -> Any:
    """Return the key or index of an element; a mapping names the one that has its fields."""
    if isinstance(key, dict):
        return next(i for i, each in enumerate(place) if key.items() <= each.items())
    return place.index(key) if isinstance(place, list) and isinstance(key, str) else key


def filled(value: Any, request: Request, runtime: KataRuntime) -> Any:
    if not isinstance(value, str):
        return value
    own = request.input.get("container_id", "")
    return value.replace("{own}", own).replace("{sandbox}", runtime.sandbox_id)


def is_target(case: dict[str, Any], request: Request, runtime: KataRuntime) -> bool:
    if request.endpoint != case["request"]:
        return False
    own = request.input.get("container_id", request.input.get("sandbox_id"))
    return own in {None, runtime.id_of(case["of"])}


@functools.cache
def verdicts_on_damaged(engine: str) -> list[bool]:
    """Judge the whole corpus in one life of an enclave: what is refused leaves no trace."""
    given = plan()
    runtime, requests = boot(given)
    asked: list[tuple[int | None, Request]] = []
    for request in requests:
        for number, case in enumerate(REFUSED):
            if is_target(case, request, runtime):
                asked.append((number, damaged(case, request, runtime)))
        asked.append((None, request))
    verdicts = ENGINES[engine](policy_of(given), [request for _, request in asked])
    found: list[bool | None] = [None] * len(REFUSED)
    for (target, request), admitted in zip(asked, verdicts, strict=True):
        if target is None:
            assert admitted, request
        else:
            found[target] = admitted
    assert None not in found
    return [bool(each) for each in found]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "number", range(len(REFUSED)), ids=[f"{each['of']}: {each['why']}" for each in REFUSED]
)
def test_a_damaged_request_is_refused(engine: str, number: int) -> None:
    assert verdicts_on_damaged(engine)[number] is False


FREE = {
    # Whom the host serves, and where; none of it decides what runs.
    *("Hostname", "Version", "CgroupsPath", "ApparmorProfile", "OOMScoreAdj", "ConsoleSize"),
    *("Shares", "Quota", "Period", "Limit", "HugepageLimits"),
    *("io.kubernetes.cri.sandbox-name", "io.kubernetes.cri.sandbox-namespace"),
    *("io.kubernetes.cri.sandbox-uid", "io.katacontainers.pkg.oci.bundle_path"),
    # Of a mount of the kernel's own, whose type decides.
    "source",
}
"""Fields of the creation of a container that may have any value."""


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield all values in a request, with where they are; lists of words as a whole."""
    children: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        children = list(enumerate(value))
    if not children:
        yield path, value
    for key, child in children:
        yield from leaves(child, (*path, key))


def other(value: Any) -> Any:
    """Return another value of the same type; of None an object."""
    if value is None:
        return {"x": "x"}
    if isinstance(value, bool):
        return not value
    if isinstance(value, list):
        return [*value, "x"]
    return value + 1 if isinstance(value, int) else f"{value}x"


def test_every_field_of_a_container_is_judged() -> None:
    given = plan()
    runtime, requests = boot(given)
    asked: list[tuple[Any, Request]] = []
    for request in requests:
        if request.endpoint == CREATE:
            for path, value in leaves(request.input):
                changed = copy.deepcopy(request.input)
                place: Any = functools.reduce(lambda at, key: at[key], path[:-1], changed)
                place[path[-1]] = other(value)
                own = {"container_id": request.input["container_id"]}
                asked += [(path, Request(CREATE, changed)), ((), Request(REMOVE, own))]
        asked.append(((), request))
    verdicts = by_opa(policy_of(given), [request for _, request in asked])
    admitted = {path[-1] for (path, _), ok in zip(asked, verdicts, strict=True) if path and ok}
    assert admitted == FREE
    kernel = [each for each in runtime.boot() if each.endpoint == CREATE][1].input["OCI"]["Mounts"]
    for (path, _), ok in zip(asked, verdicts, strict=True):
        if ok and path and path[-1] == "source":
            assert kernel[path[-2]]["type_"] != "bind"


ONCE = {
    "AddARPNeighborsRequest",
    "CreateSandboxRequest",
    "UpdateInterfaceRequest",
    "UpdateRoutesRequest",
}
"""Requests that a runtime sends before anything of the Pod runs."""


def lives(engine: str, given: EnclavePlan, after: list[Request]) -> list[bool]:
    """Judge what follows the start of an enclave."""
    _, requests = boot(given)
    verdicts = ENGINES[engine](policy_of(given), [*requests, *after])
    assert all(verdicts[: len(requests)])
    return verdicts[len(requests) :]


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


def test_the_rules_are_read_as_both_versions_of_the_language() -> None:
    given = plan()
    _, requests = boot(given)
    policy = policy_of(given)
    assert all(by_opa(policy, requests, v0=True))
    assert all(by_opa(policy, requests))
