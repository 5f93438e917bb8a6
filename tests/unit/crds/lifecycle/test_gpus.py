"""Which GPUs each container has."""

from typing import Any

import pytest

from cloister_crds.config.model import ContainerConfig
from cloister_crds.lifecycle.admission.host_requirements import (
    assigned_gpus,
    gpu_count,
    gpu_groups,
    shared_gpus,
    unassigned_gpus,
)
from tests.support.builders.resources import IMAGE, file_of


@pytest.mark.parametrize(
    ("asked", "count", "want", "shared", "rest"),
    [
        ([None], 1, {}, (), 1),
        (["all"], 8, {"c0": (0, 1, 2, 3, 4, 5, 6, 7)}, (), 0),
        ([(0, 1), (2, 3)], 8, {"c0": (0, 1), "c1": (2, 3)}, (), 4),
        ([2, (0,), 1], 4, {"c0": (1, 2), "c1": (0,), "c2": (3,)}, (), 0),
        (["all", 1], 1, {"c0": (0,), "c1": (0,)}, (0,), 0),
        ([1, 1, 1], 2, {"c0": (0,), "c1": (1,), "c2": (0,)}, (0,), 0),
        ([(0, 9)], 8, {"c0": (0, 9)}, (), 7),
        ([3], 1, {"c0": (0, 1, 2)}, (), 0),
    ],
)
def test_gpus_are_assigned(
    asked: list[Any], count: int, want: dict[str, tuple[int, ...]], shared: Any, rest: int
) -> None:
    containers = [
        ContainerConfig(name=f"c{number}", image=IMAGE, gpus=gpus)
        for number, gpus in enumerate(asked)
    ]
    assigned = assigned_gpus(file_of(*containers), count)
    assert assigned == want
    assert (shared_gpus(assigned), unassigned_gpus(assigned, count)) == (shared, rest)


@pytest.mark.parametrize(
    ("asked", "count", "want"),
    [
        (["all", "all"], 2, [(2, ("c0", "c1"))]),
        (["all", (1,), None], 3, [(2, ("c0",)), (1, ("c0", "c1"))]),
        ([(0, 1), (1, 2)], 4, [(1, ("c0",)), (1, ("c0", "c1")), (1, ("c1",)), (1, ())]),
        ([(0,), (3,)], 4, [(1, ("c0",)), (2, ()), (1, ("c1",))]),
        ([None], 2, [(2, ())]),
        ([None], 0, []),
    ],
)
def test_gpus_are_grouped_by_the_containers_that_have_them(
    asked: list[Any], count: int, want: list[tuple[int, tuple[str, ...]]]
) -> None:
    containers = [
        ContainerConfig(name=f"c{number}", image=IMAGE, gpus=gpus)
        for number, gpus in enumerate(asked)
    ]
    groups = gpu_groups(assigned_gpus(file_of(*containers), count), count)
    assert [(each.count, each.containers) for each in groups] == want


@pytest.mark.spec("21.16")
def test_spec_replaces_the_count_of_the_file() -> None:
    config = file_of(ContainerConfig(name="web", image=IMAGE), gpus=8)
    assert [gpu_count(config, given) for given in (None, 0, 1)] == [8, 0, 1]
