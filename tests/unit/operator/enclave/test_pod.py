"""Corners of the mapping from file to Pod that goldens do not show."""

from typing import Any

from cloister_crds.config import ContainerSpec, Ipc, Tmpfs, Volume
from cloister_operator.enclave.pod import build_pod
from cloister_operator.enclave.unenforced import MOST, unenforced
from tests.support.plans import SETTINGS, WEB, WORKER, config_of, plan_of


def container_of(spec: ContainerSpec, *, images: Any = ()) -> dict[str, Any]:
    pod = build_pod(plan_of(spec, images=images), SETTINGS)
    found: dict[str, Any] = pod["spec"]["containers"][0]
    return found


def with_changes(spec: ContainerSpec, **changes: object) -> ContainerSpec:
    return spec.model_copy(update=changes)


def test_command_alone_leaves_the_entrypoint_to_the_image() -> None:
    built = container_of(with_changes(WEB, command=("serve",)))
    assert built["args"] == ["serve"]
    assert "command" not in built


def test_entrypoint_alone_clears_the_command_of_the_image() -> None:
    built = container_of(with_changes(WEB, entrypoint=("/run",)))
    assert built["command"] == ["/run"]
    assert "args" not in built


def test_empty_entrypoint_runs_the_command_alone() -> None:
    built = container_of(with_changes(WEB, entrypoint=(), command=("/bin/x", "1")))
    assert built["command"] == ["/bin/x", "1"]
    assert "args" not in built


def test_empty_command_runs_the_entrypoint_of_the_image_alone() -> None:
    facts = ({"container": "web", "image": WEB.image, "entrypoint": ["/init"], "cmd": ["-v"]},)
    built = container_of(with_changes(WEB, command=()), images=facts)
    assert built["command"] == ["/init"]
    assert "args" not in built


def test_dollar_signs_reach_the_program_unchanged() -> None:
    built = container_of(with_changes(WEB, entrypoint=("sh", "-c", "echo $(HOME) $$")))
    assert built["command"] == ["sh", "-c", "echo $$(HOME) $$$$"]


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
    env = {each["name"]: each.get("value") for each in built["spec"]["containers"][0]["env"]}
    assert env["DOMAIN"] == "mine"
    assert "ABSENT" not in env
    assert "COLOUR" not in env


def test_a_file_secret_is_mounted_only_where_it_is_named() -> None:
    pod = build_pod(plan_of(WEB, WORKER), SETTINGS)
    web, worker, _ = pod["spec"]["containers"]
    volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
    service = {each["mountPath"]: each["name"] for each in web["volumeMounts"]}["/cloister"]
    secret = {each["mountPath"]: each["name"] for each in worker["volumeMounts"]}["/cloister"]
    assert "secret" not in str(volumes[service])
    assert volumes[secret]["projected"]["sources"][1]["secret"]["items"] == [
        {"key": "tls-key", "path": "secrets/tls-key"}
    ]


def test_the_shim_takes_a_name_that_is_free() -> None:
    pod = build_pod(plan_of(with_changes(WEB, name="shim")), SETTINGS)
    assert [each["name"] for each in pod["spec"]["containers"]] == ["shim", "shim-2"]


def test_shared_memory_of_the_file_replaces_ours() -> None:
    spec = with_changes(WEB, tmpfs=(Tmpfs(path="/dev/shm", size=4096),))
    mounts = container_of(spec)["volumeMounts"]
    assert [each["name"] for each in mounts if each["mountPath"] == "/dev/shm"] == ["tmpfs-0-0"]


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


def test_what_a_pod_cannot_enforce_is_listed() -> None:
    assert unenforced(config_of(WEB)) == ()
    assert unenforced(config_of(WEB, WORKER)) == (
        "containers[0].ipc",
        "containers[1].ipc",
        "containers[1].tmpfs[0]",
        "containers[1].pids_limit",
        "containers[1].healthcheck",
        "containers[1].restart",
        "containers[1].stop_signal",
    )


def test_the_list_of_what_is_not_enforced_has_an_end() -> None:
    many = tuple(with_changes(WORKER, name=f"w{number}") for number in range(30))
    fields = unenforced(config_of(*many))
    assert len(fields) == MOST
    assert fields[-1] == f"and {30 * 6 - MOST + 1} more"
