"""Corners of the mapping from file to Pod that goldens do not show."""

import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cloister_crds.config import (
    ContainerConfig,
    EnvEntry,
    Healthcheck,
    Ipc,
    ServiceConfig,
    Tmpfs,
    Volume,
)
from cloister_crds.config.model import User
from cloister_crds.config.rules.security import CAPABILITIES
from cloister_operator.enclave.built import SKIPPED_ANNOTATION
from cloister_operator.enclave.container import container_document
from cloister_operator.enclave.guest_config.agent import agent_document
from cloister_operator.enclave.network.addresses import ClusterNetwork
from cloister_operator.enclave.pod.pod import UNENFORCED_LIMIT, unenforced
from cloister_operator.rollout.pod_facts import STAGES
from tests.support.builders.enclave_plans import (
    SETTINGS,
    SURROUNDINGS,
    WEB,
    WORKER,
    build_config_map,
    build_pod,
    config_of,
    host_of,
    of_file,
    plan_of,
)
from tests.support.cluster.admission_policies import policy_documents


def container_of(spec: ContainerConfig, *, images: Any = ()) -> dict[str, Any]:
    pod = build_pod(plan_of(spec, images=images), SETTINGS)
    return of_file(pod)[0]


def with_changes(spec: ContainerConfig, **changes: object) -> ContainerConfig:
    return spec.model_copy(update=changes)


def test_dollar_signs_of_the_environment_reach_the_program_unchanged() -> None:
    built = container_of(with_changes(WEB, env=(EnvEntry(name="A", value="$(HOME) $$"),)))
    assert {"name": "A", "value": "$$(HOME) $$$$"} in built["env"]


def test_the_guest_stands_in_front_of_everything_that_the_kubelet_starts() -> None:
    pod = build_pod(plan_of(WEB, WORKER), SETTINGS)
    assert len(of_file(pod)) == 2
    for index, built in enumerate(of_file(pod)):
        document = f"/.cloister/spec/container-{index}.json"
        assert built["command"] == ["/.cloister/bin/guest", "exec", "-spec", document]
        assert "args" not in built
        assert built["securityContext"]["runAsUser"] == 0
        mounted = {each["mountPath"]: each.get("readOnly") for each in built["volumeMounts"]}
        assert mounted["/.cloister"] is True
        assert mounted["/.cloister/wiring"] is True


def test_our_parts_have_no_right_but_the_network() -> None:
    pod = build_pod(plan_of(WEB), SETTINGS)["spec"]
    every = [*pod["initContainers"], *pod["containers"]]
    ours = [each for each in every if each["command"][1] != "exec"]
    rights = {each["name"]: each["securityContext"] for each in ours}
    added = {name: one["capabilities"].get("add", []) for name, one in rights.items()}
    assert added == {
        "keep": [],
        "net": ["NET_ADMIN"],
        "agent": [],
        "shim": [],
    }
    users = [one["runAsUser"] for one in rights.values()]
    assert len(set(users)) == len(users)
    for one in rights.values():
        assert one["readOnlyRootFilesystem"]
        assert one["capabilities"]["drop"] == ["ALL"]


def test_a_pod_has_a_user_namespace_unless_its_host_says_that_it_needs_none() -> None:
    assert build_pod(plan_of(WEB), SETTINGS)["spec"]["hostUsers"] is False
    allowed = plan_of(WEB, host=host_of(allowPrivilegedLauncher=True))
    assert "hostUsers" not in build_pod(allowed, SETTINGS)["spec"]


def test_a_host_without_isolation_has_no_network_of_ours() -> None:
    pod = build_pod(plan_of(WEB, host=host_of(networkIsolation="Pod")), SETTINGS)["spec"]
    assert [each["name"] for each in pod["initContainers"]] == ["keep"]
    assert [each["name"] for each in pod["containers"]] == ["agent", "web", "shim"]
    assert "wiring" not in str(pod)


def test_only_what_serves_has_a_probe_and_none_starts_a_process() -> None:
    check = Healthcheck(test=("CMD", "true"), interval=timedelta(minutes=1))
    plan = plan_of(with_changes(WEB, healthcheck=check), WORKER)
    pod = build_pod(plan, SETTINGS)["spec"]
    probes = [
        each[name]
        for each in (*pod["initContainers"], *pod["containers"])
        for name in ("startupProbe", "readinessProbe", "livenessProbe")
        if name in each
    ]
    assert probes
    assert all("exec" not in probe for probe in probes)
    asked = [probe["httpGet"]["path"].partition("?")[0] for probe in probes]
    assert sorted(asked) == [
        "/health/Worker_1",
        "/health/web",
        "/ready",
        "/stage/shim",
    ]
    assert all(probe["httpGet"]["port"] == 8441 for probe in probes)
    assert agent_document(plan)["probes"] == "0.0.0.0:8441"


@pytest.mark.parametrize(
    ("changes", "image", "hook"),
    [
        ({}, "", False),
        ({"stop_signal": "SIGTERM"}, "", False),
        ({"stop_signal": "SIGINT"}, "", True),
        ({"stop_signal": "SIGINT"}, "SIGINT", False),
        ({}, "SIGINT", False),
        ({"stop_signal": "SIGTERM"}, "SIGINT", True),
        ({"stop_timeout": 3}, "", True),
    ],
)
def test_a_hook_stops_a_container_only_where_the_runtime_would_do_otherwise(
    changes: dict[str, Any], image: str, *, hook: bool
) -> None:
    """The Pod's grace period is that of the slowest container."""
    facts: dict[str, object] = {"container": WEB.name, "image": WEB.image, "stopSignal": image}
    slow = with_changes(WEB, name="slow", stop_timeout=10)
    plan = plan_of(with_changes(WEB, **changes), slow, images=(facts,))
    built = of_file(build_pod(plan, SETTINGS))[0]
    command = ["/.cloister/bin/guest", "stop", "-spec", "/.cloister/spec/container-0.json"]
    wanted = {"preStop": {"exec": {"command": command}}}
    assert built.get("lifecycle") == (wanted if hook else None)


def test_domain_given_as_a_variable_wins_over_the_host_name() -> None:
    plan = plan_of(WEB)
    spec = plan.enclave.spec
    request = spec.request.model_validate(
        spec.request.wire() | {"variables": [{"name": "DOMAIN", "value": "mine"}]}
    )
    enclave = plan.enclave.model_copy(update={"spec": spec.model_copy(update={"request": request})})
    built = build_pod(
        plan_of(WEB).__class__(enclave, "acme", plan.host, plan.config, b""), SETTINGS
    )
    env = {each["name"]: each.get("value") for each in of_file(built)[0]["env"]}
    assert env["DOMAIN"] == "mine"
    assert "ABSENT" not in env
    assert "COLOUR" not in env


def test_a_file_secret_is_mounted_only_where_it_is_named() -> None:
    pod = build_pod(plan_of(WEB, WORKER), SETTINGS)
    web, worker = of_file(pod)
    volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
    service = {each["mountPath"]: each["name"] for each in web["volumeMounts"]}["/cloister"]
    places = {each["mountPath"]: each for each in worker["volumeMounts"]}
    secret = places["/cloister/secrets"]
    assert places["/cloister"]["name"] == service
    assert "emptyDir" in volumes[service]
    assert secret["readOnly"]
    assert volumes[secret["name"]]["secret"]["items"] == [{"key": "tls-key", "path": "tls-key"}]
    assert "/cloister/secrets" not in {each["mountPath"] for each in web["volumeMounts"]}


def test_the_shim_takes_a_name_that_is_free() -> None:
    pod = build_pod(plan_of(with_changes(WEB, name="shim")), SETTINGS)
    names = [each["name"] for each in pod["spec"]["containers"]]
    assert names == ["net", "agent", "shim", "shim-2"]


def test_every_part_of_ours_takes_a_name_that_is_free() -> None:
    names = ("net", "Keep", "shim", "net-2")
    pod = build_pod(plan_of(*(with_changes(WEB, name=name) for name in names)), SETTINGS)
    every = [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]
    ours = [each["name"] for each in every if each["command"][1] != "exec"]
    assert ours == ["keep-2", "net-3", "agent", "shim-2"]


def test_shared_memory_of_the_file_replaces_ours() -> None:
    spec = with_changes(WEB, tmpfs=(Tmpfs(path="/dev/shm", size=4096),))
    mounts = container_of(spec)["volumeMounts"]
    assert [each["name"] for each in mounts if each["mountPath"] == "/dev/shm"] == ["mount-points"]


@pytest.mark.spec("47.3")
def test_containers_with_the_same_source_share_a_volume() -> None:
    one = with_changes(WEB, volumes=(Volume(source="data", path="/a"),))
    two = with_changes(WEB, name="two", volumes=(Volume(source="data", path="/b", read_only=True),))
    pod = build_pod(plan_of(one, two), SETTINGS)
    found = [
        mount
        for container in pod["spec"]["containers"]
        for mount in container["volumeMounts"]
        if mount["name"] == "scratch-0"
    ]
    assert found == [
        {"name": "scratch-0", "mountPath": "/a"},
        {"name": "scratch-0", "mountPath": "/b", "readOnly": True},
    ]


def test_host_ipc_shares_one_memory_among_those_that_ask() -> None:
    shared = with_changes(WEB, ipc=Ipc.HOST, shm_size=1024)
    other = with_changes(WEB, name="other", ipc=Ipc.HOST, shm_size=4096)
    alone = with_changes(WEB, name="alone", shm_size=512)
    pod = build_pod(plan_of(shared, other, alone), SETTINGS)
    sizes = {
        each["name"]: each.get("emptyDir", {}).get("sizeLimit") for each in pod["spec"]["volumes"]
    }
    assert (sizes["shm-host"], sizes["shm-2"]) == ("4096", "512")


def test_a_container_without_ipc_has_no_shared_memory_to_write() -> None:
    mounts = container_of(with_changes(WEB, ipc=Ipc.NONE))["volumeMounts"]
    (shared,) = (each for each in mounts if each["mountPath"] == "/dev/shm")
    assert (shared["name"], shared["readOnly"]) == ("mount-points", True)


def test_what_no_enclave_enforces_is_listed() -> None:
    assert unenforced(config_of(WEB)) == ()
    often = Healthcheck(test=("CMD", "true"), interval=timedelta(milliseconds=300))
    quick = with_changes(WEB, name="quick", pid="host", healthcheck=often, stop_timeout=3)
    assert unenforced(config_of(WEB, WORKER, quick)) == (
        "containers[1].pids_limit",
        "containers[1].restart",
        "containers[2].pid",
        "containers[2].stop_timeout",
    )


def limit_of(file: ServiceConfig, index: int) -> int:
    plan = plan_of(*file.containers)
    document = container_document(plan, file.containers[index])
    (soft, hard) = (document["limits"]["nproc"][each] for each in ("soft", "hard"))
    assert soft == hard
    return int(soft)


def test_processes_are_limited_exactly_where_a_user_is_one_containers_own() -> None:
    one = with_changes(WEB, name="one", user=User(uid=1), pids_limit=50)
    two = with_changes(WEB, name="two", user=User(uid=2), pids_limit=7)
    usual = with_changes(WEB, name="usual", user=User(uid=3))
    file = config_of(one, two, usual)
    assert [limit_of(file, index) for index in range(3)] == [50, 7, 65536]
    assert unenforced(file) == ()


def test_the_checkers_of_a_user_have_room_beside_its_limit() -> None:
    check = Healthcheck(test=("CMD", "true"))
    user = {"user": User(uid=1), "healthcheck": check}
    one = with_changes(WEB, name="one", pids_limit=50, **user)
    two = with_changes(WEB, name="two", pids_limit=7, **user)
    off = with_changes(one, healthcheck=Healthcheck(test=("NONE",)))
    assert limit_of(config_of(one), 0) == 50 + 16
    assert limit_of(config_of(one, two), 0) == 57 + 2 * 16
    assert limit_of(config_of(off), 0) == 50


def test_the_agent_knows_when_a_check_must_have_reported_again() -> None:
    check = Healthcheck(
        test=("CMD", "true"), interval=timedelta(seconds=30), timeout=timedelta(seconds=5)
    )
    plan = plan_of(with_changes(WEB, healthcheck=check), with_changes(WEB, name="plain"))
    times = [each["checkEveryMillis"] for each in agent_document(plan)["containers"]]
    assert times == [(30 + 5 + 15) * 1000, 0]


def test_further_addresses_of_kubelets_reach_the_packet_filter() -> None:
    """They are not measured: whoever is there learns whether the enclave is ready, and no more."""

    def told(cluster: ClusterNetwork) -> dict[str, Any]:
        data = build_config_map(plan_of(WEB), SETTINGS, cluster)["data"]
        assert json.loads(data["network.json"])["probes"] == 8441
        found: dict[str, Any] = json.loads(data["unmeasured.json"])["cluster"]
        return found

    assert "probeSources" not in told(SURROUNDINGS)
    named = told(replace(SURROUNDINGS, probe_sources=("10.1.2.3",)))
    assert named["probeSources"] == ["10.1.2.3"]


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({"user": User(uid=1)}, 57),
        ({"user": User(uid=1), "pids_limit": 65536}, 65536),
        ({"user": None, "pids_limit": 65536}, 65536),
    ],
)
def test_containers_that_may_share_a_user_have_room_for_all(
    changes: dict[str, Any], limit: int
) -> None:
    one = with_changes(WEB, name="one", user=User(uid=1), pids_limit=50)
    other = with_changes(WEB, **{"name": "other", "pids_limit": 7, **changes})
    file = config_of(one, other)
    assert limit_of(file, 0) == limit
    assert "containers[0].pids_limit" in unenforced(file)


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({"user": User(uid=0), "pids_limit": 50}, 50 + 64),
        ({"user": User(uid=1), "pids_limit": 50, "cap_add": ("SETUID",)}, 50),
    ],
    ids=["root", "may change its user"],
)
def test_what_cannot_be_limited_exactly_is_listed(changes: dict[str, Any], limit: int) -> None:
    file = config_of(with_changes(WEB, **changes))
    assert limit_of(file, 0) == limit
    assert unenforced(file) == ("containers[0].pids_limit",)


@pytest.mark.parametrize("other", [User(uid=1), None])
def test_no_limit_is_up_to_the_pods(other: User | None) -> None:
    unlimited = with_changes(WEB, name="one", user=User(uid=1), pids_limit=-1)
    sharing = with_changes(WEB, name="other", user=other, pids_limit=7)
    apart = with_changes(WEB, name="apart", user=User(uid=2), pids_limit=7)
    file = config_of(unlimited, sharing, *([apart] if other else []))
    plan = plan_of(*file.containers)
    for each in file.containers[:2]:
        assert container_document(plan, each)["limits"] == {}
    assert other is None or limit_of(file, 2) == 7
    assert unenforced(file)[:2] == (
        "containers[0].pids_limit: -1 up to podPidsLimit",
        "containers[1].pids_limit",
    )


def test_nothing_is_limited_where_users_are_the_nodes() -> None:
    plan = plan_of(WEB, host=host_of(allowPrivilegedLauncher=True))
    assert container_document(plan, WEB)["limits"] == {}


def test_the_list_of_what_is_not_enforced_has_an_end() -> None:
    many = tuple(with_changes(WORKER, name=f"w{number}", pid="host") for number in range(30))
    fields = unenforced(config_of(*many))
    assert len(fields) == UNENFORCED_LIMIT
    assert fields[-1] == f"and {30 * 3 - UNENFORCED_LIMIT + 1} more"


def test_production_has_nothing_of_ssh() -> None:
    keys = [{"name": "me", "publicKey": "ssh-ed25519 AAAA me"}]
    for spec in ({"debug": False, "sshKeys": keys}, {"debug": True}):
        plan = plan_of(WEB, **spec)
        built = (build_pod(plan, SETTINGS), build_config_map(plan, SETTINGS, SURROUNDINGS))
        assert "ssh" not in str(built).lower()
        assert "shell.sock" not in str(built)
    opened = plan_of(WEB, debug=True, sshKeys=keys)
    assert [each["name"] for each in build_pod(opened, SETTINGS)["spec"]["containers"]][-1] == "ssh"


def test_a_container_reports_at_a_socket_of_its_own() -> None:
    pod = build_pod(plan_of(WEB, WORKER), SETTINGS)
    mounts = [mount for each in of_file(pod) for mount in each["volumeMounts"]]
    parts = [each.get("subPath") for each in mounts if each["name"] == "report"]
    assert parts == ["web", "Worker_1"]
    assert all(each["readOnly"] for each in mounts if each["name"] in {"report", "service"})


@pytest.mark.parametrize(
    ("secrets", "used"),
    [
        ((), None),
        (("METRICS_TOKEN",), "METRICS_TOKEN"),
        (("METRICS_API_KEY",), "METRICS_API_KEY"),
        (("METRICS_API_KEY", "METRICS_TOKEN"), "METRICS_TOKEN"),
    ],
)
def test_the_agent_has_the_token_of_the_metrics_when_the_file_names_it(
    secrets: tuple[str, ...], used: str | None
) -> None:
    plan = plan_of(with_changes(WEB, secrets=secrets))
    spec = build_pod(plan, SETTINGS)["spec"]
    (agent,) = (each for each in spec["containers"] if each["name"] == "agent")
    mounted = "/etc/cloister-metrics" in {each["mountPath"] for each in agent["volumeMounts"]}
    assert mounted is (used is not None)
    token = agent_document(plan)["metrics"]["tokenFile"]
    assert token == ("/etc/cloister-metrics/token" if used else "")
    sources = [each["secret"] for each in spec["volumes"] if each["name"] == "metrics-token"]
    assert [each["items"] for each in sources] == (
        [[{"key": used, "path": "token"}]] if used else []
    )


def test_stages_in_which_nothing_is_done_are_written_on_the_pod() -> None:
    pod = build_pod(plan_of(WEB), SETTINGS)
    skipped = json.loads(pod["metadata"]["annotations"][SKIPPED_ANNOTATION])
    rules = agent_document(plan_of(WEB))["stages"]
    assert skipped == sorted(name for name, rule in rules.items() if "skipped" in rule)
    assert sorted(rules) == sorted(set(STAGES) - {"config", "containers", "shim"})


def test_pods_name_the_administrators_credentials_before_the_organizations() -> None:
    plain = build_pod(plan_of(WEB), SETTINGS)
    assert "imagePullSecrets" not in plain["spec"]
    plan = plan_of(WEB)
    spec = plan.enclave.spec.model_copy(update={"pull_secrets": ("ghcr", "mirror")})
    private = replace(plan, enclave=plan.enclave.model_copy(update={"spec": spec}))
    pod = build_pod(private, replace(SETTINGS, pull_secrets=("mirror", "other")))
    names = [each["name"] for each in pod["spec"]["imagePullSecrets"]]
    assert names == ["mirror", "other", "ghcr"]


def test_the_policy_admits_the_capabilities_that_pods_add_and_no_others() -> None:
    every = WEB.model_copy(update={"cap_add": CAPABILITIES})
    spec = build_pod(plan_of(every, WORKER), SETTINGS)["spec"]
    added = {
        name
        for each in (*spec["initContainers"], *spec["containers"])
        for name in each["securityContext"]["capabilities"].get("add", ())
    }
    (policy,) = (
        each
        for each in policy_documents()
        if each["kind"] == "ValidatingAdmissionPolicy"
        and each["metadata"]["name"] == "cloister-operator"
    )
    variables = {each["name"]: each["expression"] for each in policy["spec"]["variables"]}
    assert set(re.findall(r"'(\w+)'", variables["capabilities"])) == added
