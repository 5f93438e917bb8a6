"""Plans of Enclaves for tests of the builders: a small file and a rich one."""

from datetime import timedelta
from typing import Any

from cloister_crds.config import (
    ContainerConfig,
    EnvEntry,
    Healthcheck,
    Restart,
    ServiceConfig,
    Shim,
    Tmpfs,
    User,
    Volume,
)
from cloister_crds.kinds import Enclave, Host
from cloister_crds.measurement import Measurement
from cloister_operator.enclave.built import build_enclave
from cloister_operator.enclave.network.addresses import ClusterNetwork, DnsResolver
from cloister_operator.enclave.plan import BuildSettings, EnclavePlan

__all__ = [
    "SETTINGS",
    "SURROUNDINGS",
    "WEB",
    "WORKER",
    "build_config_map",
    "build_pod",
    "config_of",
    "host_of",
    "measure_enclave",
    "measured_documents",
    "plan_of",
]

_DIGEST = "sha256:" + "ab" * 32
SETTINGS = BuildSettings(
    shim_image=f"registry.example/shim@{_DIGEST}", guest_image=f"registry.example/guest@{_DIGEST}"
)
"""Settings of the administrator."""
SURROUNDINGS = ClusterNetwork(
    denied=("10.0.0.0/16", "10.96.0.0/12", "192.0.2.10/32"), resolvers=(DnsResolver("10.96.0.10"),)
)
"""A cluster."""

WEB = ContainerConfig(
    name="web",
    image=f"registry.example/web@{_DIGEST}",
    env=(
        EnvEntry(name="GREETING", value="$(HOME) costs $5"),
        EnvEntry(name="COLOUR"),
        EnvEntry(name="DOMAIN"),
        EnvEntry(name="ABSENT"),
    ),
)
"""A container with nothing but an environment."""

WORKER = ContainerConfig(
    name="Worker_1",
    image=f"registry.example/worker:1@{_DIGEST}",
    entrypoint=("/work",),
    command=("--queue", "$(QUEUE)"),
    working_dir="/srv",
    user=User(uid=1000, gid=2000),
    secrets=("API_KEY", "tls-key"),
    cap_add=("NET_BIND_SERVICE", "IPC_LOCK"),
    read_only=False,
    volumes=(
        Volume(source="cache", path="/cache"),
        Volume(source="cache", path="/cache-again", read_only=True),
    ),
    tmpfs=(Tmpfs(path="/tmp", size=1048576, mode=0o700, options=("size=1m", "mode=0700")),),
    shm_size=67108864,
    memory=1073741824,
    cpus=0.5,
    healthcheck=Healthcheck(
        test=("CMD-SHELL", "test -e $HOME/ok"),
        interval=timedelta(milliseconds=1500),
        timeout=timedelta(seconds=3),
        retries=4,
        start_period=timedelta(seconds=20),
    ),
    restart=Restart.ON_FAILURE,
    restart_limit=3,
    stop_signal="SIGINT",
    stop_timeout=45,
    pids_limit=100,
)
"""A container that uses nearly everything."""


def config_of(*containers: ContainerConfig, **changes: object) -> ServiceConfig:
    """Build a file of containers; the first is the upstream."""
    fields: dict[str, object] = {
        "cvm_version": "0.10.0",
        "cpus": 2,
        "memory": 8192,
        "containers": containers,
        "shim": Shim(
            upstream_port=8080, paths=("/", "/v1/*"), upstream_container=containers[0].name
        ),
    }
    return ServiceConfig.model_validate(fields | changes)


def host_of(**spec: object) -> Host:
    """Build a Host."""
    return Host.read({"metadata": {"name": "default"}, "spec": spec})


def plan_of(
    *containers: ContainerConfig,
    config: ServiceConfig | None = None,
    host: Host | None = None,
    images: tuple[dict[str, object], ...] = (),
    **spec: Any,
) -> EnclavePlan:
    """Build a plan of containers, on a Host without anything particular."""
    enclave = Enclave.read(
        {
            "metadata": {
                "name": "web-abcdefghij-1",
                "namespace": "org-acme",
                "uid": "11111111-2222-3333-4444-555555555555",
            },
            "spec": {
                "container": {"name": "web", "uid": "00000000-0000-0000-0000-000000000001"},
                "request": {
                    "repo": "acme/web",
                    "tag": "v1.0.0",
                    "variables": [{"name": "COLOUR", "value": "blue"}],
                },
                "revision": "abcdefghij",
                "attempt": 1,
                "repo": "acme/web",
                "tag": "v1.0.0",
                "commit": "c" * 40,
                "configDigest": _DIGEST,
                "configFile": "service-config.yml",
                "summary": {"cpus": 2, "memoryMB": 8192},
                "host": "default",
                "hostnames": ["web.acme.containers.example"],
                "images": list(images),
                **spec,
            },
        }
    )
    return EnclavePlan(
        enclave=enclave,
        organization="acme",
        host=host or host_of(),
        config=config or config_of(*containers),
        file=b"cvm-version: 0.10.0\n",
    )


def of_file(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the containers of the file, in its order: those that a launcher starts."""
    return [each for each in pod["spec"]["containers"] if each["command"][1] == "exec"]


def build_config_map(
    plan: EnclavePlan, settings: BuildSettings, cluster: ClusterNetwork
) -> dict[str, Any]:
    """Build the ConfigMap of an Enclave."""
    return build_enclave(plan, settings).config_map(cluster)


def build_pod(plan: EnclavePlan, settings: BuildSettings) -> dict[str, Any]:
    """Build the Pod of an Enclave."""
    return build_enclave(plan, settings).pod()


def measure_enclave(plan: EnclavePlan, settings: BuildSettings) -> Measurement:
    """Measure an Enclave."""
    return build_enclave(plan, settings).measurement


def measured_documents(plan: EnclavePlan, settings: BuildSettings) -> dict[str, str]:
    """Build the documents that the measurement of an Enclave names."""
    return build_enclave(plan, settings).documents
