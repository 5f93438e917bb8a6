"""The configuration file in its normalised form: what the rest of the code reads.

`parse` makes it out of a file without errors; nobody else does, but tests. Sizes are bytes,
durations are timedeltas, names are resolved, defaults of the format are filled in. A None says
that the file leaves the choice to the image or to the platform, as each field documents.
Source of the fields: spec 41 to 46.
"""

from datetime import timedelta
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict

__all__ = [
    "ContainerConfig",
    "Egress",
    "EnvEntry",
    "Healthcheck",
    "Ipc",
    "ModelSpec",
    "Network",
    "Restart",
    "ServiceConfig",
    "Shim",
    "TlsMode",
    "Tmpfs",
    "User",
    "Volume",
]


class Frozen(BaseModel):
    """What all parts of the file have in common: no changes, no further fields."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")


class Egress(StrEnum):
    """Where a network lets its containers go."""

    CLOSED = "closed"
    """Only to each other."""
    ALLOWLIST = "allowlist"
    """To the listed host names as well."""
    OPEN = "open"
    """To every public address as well."""


class Ipc(StrEnum):
    """Whose System V IPC objects and ``/dev/shm`` a container sees."""

    PRIVATE = "private"
    """Its own."""
    NONE = "none"
    """Its own, and no ``/dev/shm`` is mounted."""
    HOST = "host"
    """The one that all containers of the enclave that say so share."""


class Restart(StrEnum):
    """What follows when the process of a container exits."""

    NO = "no"
    """Nothing."""
    ALWAYS = "always"
    """It is started again."""
    ON_FAILURE = "on-failure"
    """It is started again unless it exited with code 0."""
    UNLESS_STOPPED = "unless-stopped"
    """As `ALWAYS`: an enclave's containers are never stopped one by one."""


class TlsMode(StrEnum):
    """How the file requests its certificate; only `SELF_SIGNED` acts."""

    SELF_SIGNED = "self-signed"
    """The shim makes its own."""
    ACME = "acme"
    """As the platform is set."""
    CERT_PROXY = "cert-proxy"
    """As the platform is set."""


class EncryptedBodies(StrEnum):
    """Whether bodies of requests may, or must, be encrypted to a key of the enclave."""

    OPTIONAL = "optional"
    """Clients decide, request by request."""
    REQUIRED = "required"
    """A request with an unencrypted body is refused."""


class Network(Frozen):
    """A network between containers of the enclave."""

    egress: Egress = Egress.CLOSED
    """Where its containers may go."""
    allow: tuple[str, ...] = ()
    """Host names in lower case; filled for `Egress.ALLOWLIST` only, where none means nowhere."""


class ModelSpec(Frozen):
    """Weights of a model, mounted read-only and verified."""

    name: str
    """Name in the file."""
    repo: str
    """``owner/model`` on the model hub, without the commit."""
    commit: str
    """Commit of `repo`, 40 hex digits in lower case."""
    mpk: str
    """The generated metadata exactly as the file has it."""
    root_hash: str
    """First part of `mpk`, 64 hex digits: the directory is ``mpk-<root_hash>``."""
    offset: int
    """Second part of `mpk`, in bytes: where the hash tree begins; a multiple of 4096."""
    uuid: str
    """Third part of `mpk`: UUID of the hash tree."""


class EnvEntry(Frozen):
    """An environment variable of a container."""

    name: str
    """Name of the variable."""
    value: str | None = None
    """Its value; None when the deploy-time variables set it, if any does."""


class User(Frozen):
    """Who the process of a container is."""

    uid: int
    """User id, 0 to 2147483647."""
    gid: int | None = None
    """Group id, 0 to 2147483647; None takes the group that the image's passwd file has for the
    user, and 0 when it has none."""


class Volume(Frozen):
    """Scratch space of the enclave (a ramdisk), shared by those who name the same source."""

    source: str
    """A name, or an absolute path that is a name as well and never one of the node."""
    path: str
    """Where it is mounted in the container: absolute, without ``.``, ``..`` or double slashes."""
    read_only: bool = False
    """Whether this container may only read it."""


class Tmpfs(Frozen):
    """A file system in memory of one container."""

    path: str
    """Where it is mounted in the container."""
    size: int | None = None
    """Bytes (a share in percent is already counted out); None sets no limit of its own."""
    mode: int | None = None
    """Permissions of its root such as 0o1777; None means 0o1777."""
    uid: int | None = None
    """Owner of its root; None means 0."""
    gid: int | None = None
    """Group of its root; None means 0."""
    executable: bool = False
    """Whether programs on it may be run (``exec``)."""
    read_only: bool = False
    """Whether it is mounted read-only (``ro``)."""
    options: tuple[str, ...] = ()
    """All options as the file has them, in its order."""


class Healthcheck(Frozen):
    """How the health of a container is checked, as in Docker."""

    test: tuple[str, ...]
    """Words: ``CMD`` and a command, ``CMD-SHELL`` and one line, or only ``NONE`` (no check)."""
    interval: timedelta = timedelta(seconds=30)
    """Time between two checks, at least 1 ms."""
    timeout: timedelta = timedelta(seconds=30)
    """Time after which a check has failed, at least 1 ms."""
    retries: int = 3
    """Failures in a row that make the container unhealthy, at least 1."""
    start_period: timedelta = timedelta(0)
    """Time after the start in which failures do not count."""

    @property
    def disabled(self) -> bool:
        """Whether the file says that there is no check, not even the image's."""
        return self.test == ("NONE",)


class ContainerConfig(Frozen):
    """One container of the enclave."""

    name: str
    """Unique in the file; the object's name in Kubernetes is `object_name` of it."""
    image: str
    """Reference with ``@sha256:`` as the file has it; docker.io when it names no registry."""
    command: tuple[str, ...] | None = None
    """Replaces the image's CMD; None keeps it."""
    entrypoint: tuple[str, ...] | None = None
    """Replaces the image's ENTRYPOINT and clears its CMD; None keeps both."""
    working_dir: str | None = None
    """Absolute path; None keeps the image's."""
    user: User | None = None
    """Who the process is; None keeps the image's USER, which may be a name."""
    env: tuple[EnvEntry, ...] = ()
    """Variables in the order of the file."""
    secrets: tuple[str, ...] = ()
    """Names of secrets; `secret_is_file` defines how each is delivered."""
    runtime: Literal["nvidia"] | None = None
    """``nvidia`` where `gpus` is set, else None."""
    gpus: Literal["all"] | int | tuple[int, ...] | None = None
    """``all``, a count (integer), or ids (tuple) of the enclave's GPUs; None for no GPU."""
    ipc: Ipc = Ipc.PRIVATE
    """Whose IPC objects it sees."""
    pid: Literal["host"] | None = None
    """``host`` as the file has it; each container sees its own processes only."""
    networks: tuple[str, ...] | None = None
    """Names of networks; None when the file has no such key, which means the same as none from
    version 0.10 on and the shared network below it."""
    volumes: tuple[Volume, ...] = ()
    """Scratch spaces."""
    devices: tuple[str, ...] = ()
    """Device paths below ``/dev``; the Host must map each."""
    tmpfs: tuple[Tmpfs, ...] = ()
    """File systems in memory."""
    read_only: bool = True
    """Whether the root file system is read-only."""
    cap_add: tuple[str, ...] = ()
    """Capabilities without ``CAP_``, in the order of the file; all others are dropped."""
    security_opt: tuple[str, ...] = ()
    """``no-new-privileges:true`` or nothing: it holds anyway."""
    shm_size: int | None = None
    """Bytes of ``/dev/shm``; None means half of `memory`, else half of the enclave's memory."""
    memory: int | None = None
    """Limit in bytes, at most the enclave's; None sets none."""
    cpus: float | None = None
    """Limit in processors, at most the enclave's; None sets none."""
    pids_limit: int = 65536
    """Most processes at a time; -1 sets no limit."""
    healthcheck: Healthcheck | None = None
    """None means no check (the image's HEALTHCHECK is not used either)."""
    restart: Restart = Restart.NO
    """What follows when its process exits."""
    restart_limit: int | None = None
    """Most restarts of ``on-failure:N``; None sets no limit."""
    stop_signal: str | None = None
    """Name with ``SIG``, such as ``SIGTERM`` or ``SIGRTMIN+3``; None keeps the image's."""
    stop_timeout: int | None = None
    """Seconds from the signal to the kill; None means 10."""


DEFAULT_ENDPOINTS = ("/v1/chat/completions",)
"""Paths that need a key where the file requires keys and does not list paths."""


class Shim(Frozen):
    """The entry from the internet."""

    upstream_port: int
    """Port of the upstream container, 1 to 65535."""
    paths: tuple[str, ...]
    """Paths that can be reached; a ``*`` at the end of one is a wildcard, elsewhere literal."""
    upstream_container: str
    """Name of the container that requests go to; the first when the file names none."""
    origins: tuple[str, ...] | None = None
    """Origins that browsers may come from; ``("*",)`` or None for all, ``()`` for none."""
    authenticated: bool = False
    """Whether requests to `authenticated_endpoints` need an API key."""
    authenticated_endpoints: tuple[str, ...] | None = None
    """Paths that need a key; None means ``/v1/chat/completions``, ``()`` none."""
    rate_limit: float | None = None
    """Requests per second and caller; None sets no limit."""
    rate_burst: int | None = None
    """Requests of a caller in one burst above `rate_limit`; None means 1."""
    tls_mode: TlsMode | None = None
    """How the certificate is made; None and all but `TlsMode.SELF_SIGNED` as the platform is
    set."""
    ehbp: EncryptedBodies | None = None
    """Encrypted bodies, by the Encrypted HTTP Body Protocol; None means that there are none."""

    @property
    def keyed_endpoints(self) -> tuple[str, ...]:
        """The path rules that need a key; none where the file requires no keys."""
        if not self.authenticated:
            return ()
        if self.authenticated_endpoints is None:
            return DEFAULT_ENDPOINTS
        return self.authenticated_endpoints


class ServiceConfig(Frozen):
    """The whole file."""

    cvm_version: str
    """``X.Y.Z`` or ``X.Y.Z@sha256:<hex>`` as the file has it."""
    cpus: int
    """Processors of the enclave."""
    memory: int
    """Memory of the enclave in MB of 1024 * 1024 bytes, as Docker counts them."""
    gpus: int = 0
    """GPUs of the enclave, 0 for none."""
    models: tuple[ModelSpec, ...] = ()
    """Model weights."""
    networks: dict[str, Network] = {}
    """Networks by name, in the order of the file."""
    containers: tuple[ContainerConfig, ...]
    """At least one."""
    shim: Shim
    """The entry from the internet."""

    @property
    def version(self) -> tuple[int, int, int]:
        """The numbers of `cvm_version`, for comparisons."""
        major, minor, patch = self.cvm_version.partition("@")[0].split(".")
        return int(major), int(minor), int(patch)

    @property
    def cvm_digest(self) -> str | None:
        """``sha256:<hex>`` of `cvm_version`; None when the file pins none."""
        return self.cvm_version.partition("@")[2] or None

    def container(self, name: str) -> ContainerConfig:
        """Return the container of that name.

        Raises
        ------
        KeyError
            When the file has no container of that name.
        """
        for container in self.containers:
            if container.name == name:
                return container
        raise KeyError(name)
