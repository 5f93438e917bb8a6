"""The document by which the guest starts, checks and stops one container of the file.

The document's fields are those of the guest's package `spec`. It holds no secret: every container
of the enclave may read it, as it may read the file.
"""

from datetime import timedelta
from typing import Any

from cloister_crds.config import ContainerConfig, Healthcheck, Ipc, Tmpfs, object_name
from cloister_crds.kinds.enclave import ImageFacts
from cloister_crds.lifecycle.admission.host_selection import maps_users
from cloister_operator.enclave.container.process_limit import process_limit
from cloister_operator.enclave.plan import EnclavePlan
from cloister_operator.enclave.sidecars import SSH, isolates_containers

__all__ = [
    "DEFAULT_STOP_TIMEOUT",
    "GUEST_DIRECTORY",
    "PUBLISHED_DIRECTORY",
    "REPORT_PLACE",
    "SHELL_DIRECTORY",
    "SHELL_SOCKET",
    "SPEC_DIRECTORY",
    "WIRING_DIRECTORY",
    "container_document",
    "document_key",
    "stop_timeout",
]

GUEST_DIRECTORY = "/.cloister"
"""The guest's own directory in every container: one mount, which nothing can move away."""
SPEC_DIRECTORY = f"{GUEST_DIRECTORY}/spec"
"""Where the documents are."""
PUBLISHED_DIRECTORY = f"{GUEST_DIRECTORY}/published"
"""Where ``guest keep`` alone has the measurement as it was published, before it is verified."""
WIRING_DIRECTORY = f"{GUEST_DIRECTORY}/wiring"
"""Where the container's own wiring socket is."""
REPORT_PLACE = f"{GUEST_DIRECTORY}/report"
"""Where the container's own report socket is."""
SHELL_DIRECTORY = f"{GUEST_DIRECTORY}/ssh"
"""Where the container's own shell socket is, in debug enclaves with SSH."""
SHELL_SOCKET = "shell.sock"
"""Name of the shell socket."""
DEFAULT_STOP_TIMEOUT = 10
"""Seconds between the stop signal and the kill, where the file sets none (as Docker)."""
_VERSION = 1
_DEADLINE_SECONDS = 120
_HOME = "HOME"
_MEBI = 1024 * 1024
_TIMES = ("atime", "noatime", "diratime", "nodiratime", "relatime", "strictatime")


def document_key(index: int) -> str:
    """Return the key of a document in the ConfigMap, and its file name.

    Parameters
    ----------
    index
        Place of the container in the file, from 0.
    """
    return f"container-{index}.json"


def container_document(plan: EnclavePlan, container: ContainerConfig) -> dict[str, Any]:
    """Build the document of how a container is started, checked and stopped.

    Returns
    -------
    dict[str, Any]
        The document of ``guest exec``, ``checker`` and ``stop``.
    """
    image = plan.facts(container)
    document: dict[str, Any] = {
        "version": _VERSION,
        "name": container.name,
        "ipc": "shared" if container.ipc is Ipc.HOST else "private",
        "image": {
            "entrypoint": _words(image.entrypoint),
            "command": _words(image.cmd),
            "workingDir": image.working_dir,
            "user": image.user,
        },
        "entrypoint": _words(container.entrypoint),
        "command": _words(container.command),
        "workingDir": container.working_dir or "",
        "user": _user(container),
        "keepHome": _has_home(container, image),
        "capabilities": list(container.cap_add),
        "limits": _limits(plan, container),
        "tmpfs": {each.path: _options(plan, container, each) for each in container.tmpfs},
        "guestPaths": [GUEST_DIRECTORY],
        "agent": {"socket": f"{REPORT_PLACE}/report.sock", "deadlineSeconds": _DEADLINE_SECONDS},
        "health": _health(container.healthcheck),
        "stop": {
            "signal": container.stop_signal or image.stop_signal or "SIGTERM",
            "timeoutMillis": 1000 * stop_timeout(container),
        },
    }
    if plan.has_ssh:
        document["shells"] = {"socket": f"{SHELL_DIRECTORY}/{SHELL_SOCKET}", "client": SSH.user}
    if isolates_containers(plan.host):
        socket = f"{WIRING_DIRECTORY}/wiring.sock"
        document |= {
            "hostname": object_name(container.name),
            "network": {"socket": socket, "deadlineSeconds": _DEADLINE_SECONDS},
            "lowPorts": True,
        }
    return document


def stop_timeout(container: ContainerConfig) -> int:
    """Return the seconds between the stop signal and the kill."""
    return DEFAULT_STOP_TIMEOUT if container.stop_timeout is None else container.stop_timeout


def _limits(plan: EnclavePlan, container: ContainerConfig) -> dict[str, Any]:
    """Return the resource limits of a container's processes."""
    if not maps_users(plan.host.spec):
        return {}
    most = process_limit(container, plan.config.containers)
    if most is None:
        return {}
    return {"nproc": {"soft": most, "hard": most}}


def _words(words: tuple[str, ...] | None) -> list[str] | None:
    """Return words of a command line; None = not set."""
    return None if words is None else list(words)


def _user(container: ContainerConfig) -> str:
    """Return the user as the file writes it; empty = the image's."""
    user = container.user
    if user is None:
        return ""
    return str(user.uid) if user.gid is None else f"{user.uid}:{user.gid}"


def _has_home(container: ContainerConfig, image: ImageFacts) -> bool:
    """Return whether the file or the image names HOME; else it is the user's directory.

    Whether a bare name gets a value is not known here: variables of a request are not measured.
    """
    named = {entry.name for entry in container.env} | set(container.secrets)
    return _HOME in named | {variable.partition("=")[0] for variable in image.env}


def _options(plan: EnclavePlan, container: ContainerConfig, tmpfs: Tmpfs) -> str:
    """Write the options of a tmpfs as the guest reads them: each once, the last one counting."""
    size = tmpfs.size or container.memory or plan.config.memory * _MEBI
    options = {"size": f"size={size}", "exec": "exec" if tmpfs.executable else "noexec"}
    if tmpfs.read_only:
        options["ro"] = "ro"
    for name, value in (("uid", tmpfs.uid), ("gid", tmpfs.gid)):
        if value is not None:
            options[name] = f"{name}={value}"
    if tmpfs.mode is not None:
        options["mode"] = f"mode={tmpfs.mode:o}"
    for option in tmpfs.options:
        name = option.partition("=")[0]
        if name == "nr_inodes" or name in _TIMES:
            options[name] = option
    return ",".join(options.values())


def _health(check: Healthcheck | None) -> dict[str, Any] | None:
    """Build the health check; None = there is none."""
    if check is None or check.disabled:
        return None
    return {
        "test": list(check.test),
        "intervalMillis": _millis(check.interval),
        "timeoutMillis": _millis(check.timeout),
        "startPeriodMillis": _millis(check.start_period),
        "retries": check.retries,
    }


def _millis(duration: timedelta) -> int:
    """Return whole milliseconds."""
    return duration // timedelta(milliseconds=1)
