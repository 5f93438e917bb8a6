"""No field of the configuration file is refused for want of a part, but those named here."""

from datetime import timedelta

from cloister_crds.config.model import (
    ContainerSpec,
    Egress,
    EnvEntry,
    Healthcheck,
    Ipc,
    ModelSpec,
    Network,
    Restart,
    ServiceConfig,
    Shim,
    TlsMode,
    Tmpfs,
    User,
    Volume,
)
from cloister_crds.lifecycle.supported import not_supported_yet
from tests.support.builders import IMAGE

WAITING = {"shim.authenticated", "shim.rate-limit"}
"""Fields whose parts are not built; a field goes from here when its part is."""

UUID = "6493760e-f831-5d28-81b4-39e665a8095a"
EVERYTHING = ServiceConfig(
    cvm_version="0.10.0@sha256:" + "ab" * 32,
    cpus=32,
    memory=524288,
    gpus=8,
    models=(
        ModelSpec(
            name="tiny",
            repo="example/tiny",
            commit="0" * 40,
            mpk=f"{'ab' * 32}_4096_{UUID}",
            root_hash="ab" * 32,
            offset=4096,
            uuid=UUID,
        ),
    ),
    networks={"out": Network(egress=Egress.ALLOWLIST, allow=("example.com",))},
    containers=(
        ContainerSpec(
            name="web",
            image=IMAGE,
            command=("serve",),
            entrypoint=("/bin/entry",),
            working_dir="/srv",
            user=User(uid=1, gid=2),
            env=(EnvEntry(name="A", value="b"),),
            secrets=("KEY", "key-file"),
            runtime="nvidia",
            gpus=(0, 1),
            ipc=Ipc.HOST,
            pid="host",
            networks=("out",),
            volumes=(Volume(source="cache", path="/cache", read_only=True),),
            devices=("/dev/kvm",),
            tmpfs=(Tmpfs(path="/tmp", size=1, mode=0o700, uid=1, gid=1, options=("size=1",)),),
            read_only=False,
            cap_add=("IPC_LOCK",),
            security_opt=("no-new-privileges:true",),
            shm_size=1 << 20,
            memory=1 << 30,
            cpus=0.5,
            pids_limit=5,
            healthcheck=Healthcheck(test=("CMD", "true"), interval=timedelta(seconds=1)),
            restart=Restart.ON_FAILURE,
            restart_limit=3,
            stop_signal="SIGINT",
            stop_timeout=5,
        ),
    ),
    shim=Shim(
        upstream_port=80,
        paths=("/*",),
        upstream_container="web",
        origins=("https://example.com",),
        authenticated=True,
        authenticated_endpoints=("/v1/x",),
        rate_limit=1.0,
        rate_burst=2,
        tls_mode=TlsMode.SELF_SIGNED,
    ),
)
"""A file that uses every field."""


def test_the_file_uses_every_field() -> None:
    for part in (EVERYTHING, EVERYTHING.containers[0], EVERYTHING.shim):
        usual = {
            name: field.get_default()
            for name, field in type(part).model_fields.items()
            if not field.is_required()
        }
        same = {name for name, value in usual.items() if getattr(part, name) == value}
        assert same == set(), f"{type(part).__name__} leaves {same} out"


def test_no_other_field_waits_for_its_part() -> None:
    assert {each.field for each in not_supported_yet(config=EVERYTHING)} <= WAITING
