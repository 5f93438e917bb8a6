"""A container's part of processors, memory and GPUs."""

from collections.abc import Callable

import pytest

from cloister_crds.config import ContainerConfig
from cloister_crds.config.syntax.scalars import read_size

Verdict = Callable[..., list[str]]
Built = Callable[..., ContainerConfig]
MIB = 1024 * 1024
GPUS = "gpus: 8"


@pytest.mark.spec("42.20", "42.21", "42.36")
@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512m", 512 * MIB),
        ("512M", 512 * MIB),
        ("512mb", 512 * MIB),
        ("1GiB", 1024 * MIB),
        ("2g", 2048 * MIB),
        ("1.5g", 1536 * MIB),
        ("64k", 65536),
        ("100b", 100),
        ("100", 100),
        ("1 g", 1024 * MIB),
        ("1t", 1024 * 1024 * MIB),
        ("0", 0),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert read_size(text) == size


@pytest.mark.spec("42.20", "42.21", "42.36")
@pytest.mark.parametrize(
    "text", ["", "g", "1x", "1gg", "-1g", "1..5g", "1e3", "1,5g", "1  g", "9" * 19]
)
def test_texts_that_are_no_size(text: str) -> None:
    assert read_size(text) is None
    assert read_size("999999p") is None


@pytest.mark.spec("42.20", "42.21")
def test_memory_and_shared_memory(built: Built) -> None:
    container = built("memory: 512m\nshm_size: 2g")
    assert (container.memory, container.shm_size) == (512 * MIB, 2048 * MIB)
    assert (built().memory, built().shm_size) == (None, None)
    assert built("memory: 536870912").memory == 512 * MIB


@pytest.mark.spec("42.20", "42.21", "42.36")
@pytest.mark.parametrize("key", ["memory", "shm_size"])
@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("big", "InvalidSize"),
        ("512 MB x", "InvalidSize"),
        ("''", "InvalidSize"),
        ("0", "OutOfRange"),
        ("0m", "OutOfRange"),
        ("-1", "InvalidSize"),
        ("9g", "OutOfRange"),
        ("1.5", "InvalidSize"),
        ("[1g]", "WrongType"),
    ],
)
def test_sizes_that_are_refused(verdict: Verdict, key: str, value: str, code: str) -> None:
    assert verdict(f"{key}: {value}") == [f"containers[0].{key} {code}"]


def test_memory_without_a_unit_is_bytes(verdict: Verdict) -> None:
    assert verdict("memory: 512") == ["containers[0].memory OutOfRange"]
    assert verdict("memory: 6m") == []
    assert verdict("memory: 8192m") == []
    assert verdict("memory: 8193m") == ["containers[0].memory OutOfRange"]


@pytest.mark.spec("42.22")
def test_cpus(built: Built, verdict: Verdict) -> None:
    assert built("cpus: 0.5").cpus == 0.5
    assert built("cpus: 4").cpus == 4
    assert built("cpus: 2.0").cpus == 2
    assert built().cpus is None
    assert verdict("cpus: 0") == ["containers[0].cpus OutOfRange"]
    assert verdict("cpus: 0.0") == ["containers[0].cpus OutOfRange"]
    assert verdict("cpus: -1") == ["containers[0].cpus WrongType"]
    assert verdict("cpus: 4.5") == ["containers[0].cpus OutOfRange"]
    assert verdict("cpus: .inf") == ["containers[0].cpus AmbiguousScalar"]


@pytest.mark.spec("42.9", "42.10", "42.32")
@pytest.mark.parametrize(
    ("value", "gpus"),
    [
        ("all", "all"),
        ("1", 1),
        ("8", 8),
        ("0,1", (0, 1)),
        ("'0'", (0,)),
        ("'7,3'", (7, 3)),
    ],
)
def test_container_gpus(built: Built, value: str, gpus: object) -> None:
    container = built(f"runtime: nvidia\ngpus: {value}", top=GPUS)
    assert container.gpus == gpus
    assert container.runtime == "nvidia"


@pytest.mark.spec("42.9", "42.10", "42.32")
@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("0", "OutOfRange"),
        ("9", "OutOfRange"),
        ("-1", "OutOfRange"),
        ("'8'", "OutOfRange"),
        ("'0,8'", "OutOfRange"),
        ("'0, 1'", "InvalidGpus"),
        ("'0,0'", "DuplicateEntry"),
        ("'00'", "InvalidGpus"),
        ("'0,'", "InvalidGpus"),
        ("any", "InvalidGpus"),
        ("[0, 1]", "WrongType"),
        ("true", "WrongType"),
    ],
)
def test_container_gpus_that_are_refused(verdict: Verdict, value: str, code: str) -> None:
    assert verdict(f"runtime: nvidia\ngpus: {value}", top=GPUS) == [f"containers[0].gpus {code}"]


@pytest.mark.spec("42.9", "42.10", "42.32")
@pytest.mark.parametrize(
    ("container", "top", "problems"),
    [
        ("runtime: nvidia", GPUS, ["containers[0].runtime GpusMissing"]),
        ("gpus: all", GPUS, ["containers[0].gpus RuntimeMissing"]),
        ("runtime: nvidia\ngpus: all", "", ["containers[0].gpus NoGpus"]),
        (
            "runtime: nvidia",
            "",
            ["containers[0].runtime GpusMissing", "containers[0].runtime NoGpus"],
        ),
        (
            "runtime: runc",
            "",
            ["containers[0].runtime InvalidValue", "containers[0].runtime NoGpus"],
        ),
        ("", GPUS, ["gpus GpusUnused?"]),
        ("runtime: nvidia\ngpus: all", "gpus: 5", ["gpus NotOffered"]),
    ],
)
def test_gpus_runtime_and_enclave_go_together(
    verdict: Verdict, container: str, top: str, problems: list[str]
) -> None:
    assert verdict(container, top=top) == problems
