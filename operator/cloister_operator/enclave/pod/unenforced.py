"""Fields of a file that an Enclave cannot enforce: reported, never ignored.

The list is in ``status.unenforced`` of the Container, by field of the file.
"""

from collections.abc import Iterator, Sequence

from cloister_crds.config import ContainerConfig, Restart, ServiceConfig
from cloister_operator.enclave.container.devices import VISIBLE_DEVICES
from cloister_operator.enclave.container.process_limit import UNLIMITED, has_exact_limit
from cloister_operator.enclave.pod.pod import grace_period

__all__ = ["LIMIT", "unenforced"]

LIMIT = 64
"""Most entries that the status of a Container has room for."""


def unenforced(config: ServiceConfig) -> tuple[str, ...]:
    """List the fields that no enclave enforces; a Host may add `networks` and `pids_limit`.

    Returns
    -------
    tuple[str, ...]
        Fields such as ``containers[0].pids_limit``, in the order of the file, at most `LIMIT`;
        where there are more, the last entry is their number.
    """
    grace = grace_period(config.containers)
    fields = [
        f"containers[{index}].{name}"
        for index, container in enumerate(config.containers)
        for name in _of_container(container, config.containers, grace=grace)
    ]
    if len(fields) > LIMIT:
        return (*fields[: LIMIT - 1], f"and {len(fields) - LIMIT + 1} more")
    return tuple(fields)


def _of_container(
    container: ContainerConfig, containers: Sequence[ContainerConfig], *, grace: int
) -> Iterator[str]:
    """Yield the fields of one container in the order of spec 42."""
    if any(each.name == VISIBLE_DEVICES for each in container.env):
        yield f"env.{VISIBLE_DEVICES}"
    if container.pid is not None:
        yield "pid"
    if container.pids_limit == UNLIMITED:
        yield "pids_limit: -1 up to podPidsLimit"
    elif not has_exact_limit(container, containers):
        yield "pids_limit"
    if container.restart is Restart.ON_FAILURE and container.restart_limit is not None:
        yield "restart"
    # A program that ignores its signal runs until the end of the Pod's grace period: nothing in a
    # PID namespace may kill its first process (PID 1).
    if container.stop_timeout is not None and container.stop_timeout != grace:
        yield "stop_timeout"
