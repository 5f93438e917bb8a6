"""What of a file the Pod of an Enclave cannot enforce: said openly, never passed over.

The list stands in ``status.unenforced`` of the Container, by field of the file.
"""

from collections.abc import Iterator

from cloister_crds.config import ContainerSpec, Ipc, Restart, ServiceConfig
from cloister_operator.enclave.health import is_rounded
from cloister_operator.enclave.pod import grace_period

__all__ = ["MOST", "unenforced"]

MOST = 64
"""Most entries that the status of a Container has room for."""
_DEFAULT_PIDS = 65536
_TERMINATE = "SIGTERM"


def unenforced(config: ServiceConfig) -> tuple[str, ...]:
    """List the fields that an enclave without the guest cannot enforce.

    Parameters
    ----------
    config
        The parsed file.

    Returns
    -------
    tuple[str, ...]
        Fields such as ``containers[0].pids_limit``, in the order of the file, at most `MOST`;
        where there are more, the last one says how many.
    """
    grace = grace_period(config.containers)
    fields = [
        f"containers[{index}].{name}"
        for index, container in enumerate(config.containers)
        for name in _of_container(container, grace=grace, alone=len(config.containers) == 1)
    ]
    if config.networks:
        fields.append("networks")
    if len(fields) > MOST:
        return (*fields[: MOST - 1], f"and {len(fields) - MOST + 1} more")
    return tuple(fields)


def _of_container(container: ContainerSpec, *, grace: int, alone: bool) -> Iterator[str]:
    """Go through the fields of one container in the order of the specification."""
    if container.ipc is Ipc.NONE or (container.ipc is Ipc.PRIVATE and not alone):
        yield "ipc"
    if container.pid is not None:
        yield "pid"
    for number, tmpfs in enumerate(container.tmpfs):
        given = (tmpfs.mode, tmpfs.uid, tmpfs.gid)
        if not tmpfs.executable or any(each is not None for each in given):
            yield f"tmpfs[{number}]"
    if container.pids_limit != _DEFAULT_PIDS:
        yield "pids_limit"
    check = container.healthcheck
    if check is not None and not check.disabled and is_rounded(check):
        yield "healthcheck"
    if container.restart is Restart.ON_FAILURE and container.restart_limit is not None:
        yield "restart"
    if container.stop_signal not in (None, _TERMINATE):
        yield "stop_signal"
    if container.stop_timeout is not None and container.stop_timeout != grace:
        yield "stop_timeout"
