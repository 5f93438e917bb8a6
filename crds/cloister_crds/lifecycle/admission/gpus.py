"""GPU assignment: which of the enclave's GPUs each container of a file has. Pure.

Source: spec 42.32: the top level attaches GPUs to the enclave,
a container then names all of them, a count or ids.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from cloister_crds.config.model import ServiceConfig

__all__ = [
    "GpuGroup",
    "assigned_gpus",
    "gpu_count",
    "gpu_groups",
    "shared_gpus",
    "unassigned_gpus",
]


@dataclass(frozen=True, slots=True)
class GpuGroup:
    """GPUs of an enclave that the same containers have."""

    count: int
    """How many there are."""
    containers: tuple[str, ...]
    """Names of the containers, in the order of the file; empty = no container has them."""


def gpu_count(config: ServiceConfig, given: int | None) -> int:
    """Return how many GPUs an enclave has.

    Parameters
    ----------
    config
        The parsed file.
    given
        spec.gpus; None = the file's value holds.
    """
    return config.gpus if given is None else given


def assigned_gpus(config: ServiceConfig, count: int) -> dict[str, tuple[int, ...]]:
    """Assign the enclave's GPUs to containers.

    Parameters
    ----------
    config
        The parsed file.
    count
        GPUs of the enclave (`gpu_count`).

    Returns
    -------
    dict[str, tuple[int, ...]]
        Ids from 0 by name of the container, for those that have any. ``all`` and ids are taken
        literally, even ids that the enclave does not have. A count takes the first ids that no
        earlier container has and none names; if too few of those are left, the first of all.
    """
    named = {
        number for each in config.containers if isinstance(each.gpus, tuple) for number in each.gpus
    }
    assigned: dict[str, tuple[int, ...]] = {}
    for each in config.containers:
        if each.gpus is None:
            continue
        if isinstance(each.gpus, tuple):
            assigned[each.name] = each.gpus
            continue
        if each.gpus == "all":
            assigned[each.name] = tuple(range(count))
            continue
        taken = named.union(*assigned.values())
        free = [number for number in range(count) if number not in taken]
        source = free if len(free) >= each.gpus else range(each.gpus)
        assigned[each.name] = tuple(source[: each.gpus])
    return assigned


def shared_gpus(assigned: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the ids that more than one container has, from the result of `assigned_gpus`."""
    everything = [number for numbers in assigned.values() for number in numbers]
    return tuple(sorted({number for number in everything if everything.count(number) > 1}))


def unassigned_gpus(assigned: dict[str, tuple[int, ...]], count: int) -> int:
    """Return how many GPUs of the enclave no container has.

    Parameters
    ----------
    assigned
        Result of `assigned_gpus`.
    count
        GPUs of the enclave.
    """
    used: Iterable[int] = {number for numbers in assigned.values() for number in numbers}
    return count - len([number for number in used if number < count])


def gpu_groups(assigned: dict[str, tuple[int, ...]], count: int) -> tuple[GpuGroup, ...]:
    """Group the GPUs of an enclave by the containers that have them.

    Parameters
    ----------
    assigned
        Result of `assigned_gpus`.
    count
        GPUs of the enclave.

    Returns
    -------
    tuple[GpuGroup, ...]
        In the order of the first id of each; together they are all of the enclave's.
    """
    sizes: dict[tuple[str, ...], int] = {}
    for number in range(count):
        users = tuple(name for name, numbers in assigned.items() if number in numbers)
        sizes[users] = sizes.get(users, 0) + 1
    return tuple(GpuGroup(size, users) for users, size in sizes.items())
