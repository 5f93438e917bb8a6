"""The rules for the agent of a machine, judged by the engines that read them.

`tests/data/guest_policy/refused.yaml` has the requests that are refused; what is admitted is what
Kata's runtime sends for the very Pod (a stand-in: `tests.support.stand_ins.kata_runtime`).
"""

import copy
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.builders.guest_policies import (
    CREATE,
    PLANS,
    REMOVE,
    boot,
    plan,
    policy_of,
    refused,
    runtime_of,
)
from tests.support.rego_engines import ENGINES, by_opa
from tests.support.stand_ins.kata_runtime import KataRuntime, Request

pytestmark = pytest.mark.programs("rego-judge")

DATA = Path(__file__).parents[1] / "data" / "guest_policy"
REFUSED: list[dict[str, Any]] = yaml.safe_load((DATA / "refused.yaml").read_text())


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
    elif value == "twice":
        place[last] = [*place[last], *place[last]]
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
    if isinstance(value, dict):
        return {key: filled(each, request, runtime) for key, each in value.items()}
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


FREE_OF_OTHERS = {
    "CreateSandboxRequest": {"hostname", "dns"},
    "ExecProcessRequest": {"exec_id", "ApparmorProfile", "OOMScoreAdj", "ConsoleSize"},
    "CopyFileRequest": {"file_size", "file_mode", "dir_mode", "uid", "gid", "offset"},
}
"""Fields of other requests that may have any value."""


@pytest.mark.parametrize("endpoint", FREE_OF_OTHERS)
def test_every_field_of_other_requests_is_judged(endpoint: str) -> None:
    given = plan()
    _, requests = boot(given)
    # A link, of which each field counts.
    request = [each for each in requests if each.endpoint == endpoint][-1]
    before = requests if endpoint == "ExecProcessRequest" else []
    admitted = set()
    for path, value in leaves(request.input):
        changed = copy.deepcopy(request.input)
        place: Any = functools.reduce(lambda at, key: at[key], path[:-1], changed)
        place[path[-1]] = other(value)
        if by_opa(policy_of(given), [*before, Request(endpoint, changed)])[-1]:
            admitted.add(path[-1])
    assert admitted == FREE_OF_OTHERS[endpoint]


AMOUNTS = {"Memory", "CPU"}
"""Objects of amounts, which the host may choose anyway."""


def objects(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where the objects in a request are."""
    if isinstance(value, dict):
        yield path
    for key, child in dict(value).items() if isinstance(value, dict) else enumerate(value):
        if isinstance(child, dict | list):
            yield from objects(child, (*path, key))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_field_of_another_version_is_refused(engine: str) -> None:
    given = plan()
    asked: list[tuple[Any, Request]] = []
    _, requests = boot(given)
    for request in requests:
        if request.endpoint in {CREATE, "CreateSandboxRequest", "ExecProcessRequest"}:
            for path in objects(request.input):
                whole = copy.deepcopy(request.input)
                functools.reduce(lambda at, key: at[key], path, whole)["New"] = True
                own = {"container_id": request.input.get("container_id", "0" * 64)}
                asked += [(path or ("",), Request(request.endpoint, whole))]
                if request.endpoint == CREATE:
                    asked.append(((), Request(REMOVE, own)))
        asked.append(((), request))
    verdicts = ENGINES[engine](policy_of(given), [request for _, request in asked])
    admitted = {path[-1] for (path, _), ok in zip(asked, verdicts, strict=True) if path and ok}
    assert admitted == AMOUNTS


def test_the_rules_are_read_as_both_versions_of_the_language() -> None:
    given = plan()
    _, requests = boot(given)
    policy = policy_of(given)
    assert all(by_opa(policy, requests, v0=True))
    assert all(by_opa(policy, requests))
