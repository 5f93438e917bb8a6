"""How many processes a container may have: `pids_limit` as a resource limit of its user.

The kernel counts processes and threads by user in each user namespace (getrlimit(2),
RLIMIT_NPROC; user_namespaces(7)), and a Pod has one: containers with the same user share a count.
The guest sets the limit as the last step before a program runs; no capability inside a user
namespace lifts it. Without a user namespace of the Pod's own the count would be one of all Pods
of the node, and root would be exempt: nothing is set there.
"""

from collections.abc import Sequence

from cloister_crds.config import ContainerConfig
from cloister_crds.config.effective import has_health_check

__all__ = ["DEFAULT_PROCESSES", "UNLIMITED", "has_exact_limit", "process_limit"]

DEFAULT_PROCESSES = 65536
"""Processes of a container where the file says nothing (spec 47.1)."""
UNLIMITED = -1
"""``pids_limit`` of a container that only the Pod's limit bounds, the kubelet's podPidsLimit."""
_CHANGES_USER = "SETUID"
"""With this capability a program has as many counts as there are users."""
_GUEST_THREADS = 64
"""Threads of ``guest net``, and of launchers, that count as root's."""
_CHECKER_THREADS = 16
"""Threads of ``guest checker`` and of a test that begins, which have the container's user."""


def process_limit(container: ContainerConfig, containers: Sequence[ContainerConfig]) -> int | None:
    """Return the limit for the user of a container.

    Parameters
    ----------
    container
        A container of the file.
    containers
        All containers of the file.

    Returns
    -------
    int or None
        Its own limit where no other container can have its user; else what those that can may have
        together, so that none is kept from what the file gives it. The guest's own threads come on
        top. None if one of them has no limit.
    """
    sharing = [each for each in containers if each is container or _may_share(container, each)]
    if any(each.pids_limit == UNLIMITED for each in sharing):
        return None
    named = [each.pids_limit for each in sharing if _is_named(each)]
    total = sum(named)
    if len(named) < len(sharing):
        total = max(total, DEFAULT_PROCESSES)
    checkers = _CHECKER_THREADS * sum(1 for each in sharing if has_health_check(each))
    return total + checkers + (_GUEST_THREADS if _may_be_root(container) else 0)


def has_exact_limit(container: ContainerConfig, containers: Sequence[ContainerConfig]) -> bool:
    """Return whether `process_limit` is exactly what the file says for this one container.

    The default is a bound against runaway programs and counts as exact. No limit is not, since the
    Pod has one.
    """
    if container.pids_limit == DEFAULT_PROCESSES:
        return True
    if _CHANGES_USER in container.cap_add:
        return False
    alone = all(each is container or not _may_share(container, each) for each in containers)
    return alone and _is_named(container) and not _may_be_root(container)


def _is_named(container: ContainerConfig) -> bool:
    return container.pids_limit not in {UNLIMITED, DEFAULT_PROCESSES}


def _may_share(one: ContainerConfig, other: ContainerConfig) -> bool:
    """Return whether two containers may have one user; only the file's own are known for sure."""
    return one.user is None or other.user is None or one.user.uid == other.user.uid


def _may_be_root(container: ContainerConfig) -> bool:
    return container.user is None or container.user.uid == 0
