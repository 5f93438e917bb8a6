"""Processors, memory and GPUs: those of the enclave and a container's part of them.

Source: spec 41.2 to 41.4, 42.9, 42.10, 42.20 to 42.22, 42.32, 42.36.
"""

import re
from collections.abc import Sequence
from typing import Final, Literal

from cloister_crds.config.effective import MEGABYTE
from cloister_crds.config.syntax.reading import Section, Spot, show
from cloister_crds.config.syntax.scalars import ScalarKind, read_size

__all__ = [
    "GPU_PATTERN",
    "check_container_gpus",
    "check_gpu_use",
    "check_shares",
    "read_bytes",
    "read_container_gpus",
    "read_cpus",
    "read_gpus",
    "read_limit",
    "read_memory",
]

LEAST_MEMORY: Final = 6 * MEGABYTE
"""Least limit of a container's memory, as in Docker."""
GPU_PATTERN: Final = r"all|(0|[1-9][0-9]?)(,(0|[1-9][0-9]?))*"
"""What GPUs of a container look like when they are text."""
MAX_GPU_TEXT: Final = 300
"""Characters of a hundred ids."""


def _read_tier(spot: Spot, tiers: Sequence[int], unit: str) -> int | None:
    amount = spot.integer(0)
    if amount is None or amount in tiers:
        return amount
    listed = ", ".join(str(tier) for tier in tiers) or "nothing (leave the key out)"
    spot.error("NotOffered", f"is {amount}{unit}: write one of {listed}")
    return None


def read_cpus(spot: Spot) -> int | None:
    """Read the processors of the enclave."""
    return _read_tier(spot, spot.report.rules.cpu_tiers, "")


def read_memory(spot: Spot) -> int | None:
    """Read the memory of the enclave in MB."""
    return _read_tier(spot, spot.report.rules.memory_tiers, " MB")


def read_gpus(spot: Spot) -> int | None:
    """Read the GPUs of the enclave."""
    if (
        spot.kind is ScalarKind.INTEGER
        and spot.raw == "0"
        and 0 not in spot.report.rules.gpu_counts
    ):
        spot.warn("NoEffect", "is 0, which means none: leave it out")
        return 0
    return _read_tier(spot, spot.report.rules.gpu_counts, "")


def read_bytes(spot: Spot) -> int | None:
    """Read an amount of memory in Docker's units, greater than 0."""
    wanted = "an amount such as 512m or 2g"
    if spot.kind is ScalarKind.FLOAT:
        spot.error("InvalidSize", f"{spot.raw} has no unit: write {wanted}")
        return None
    text = spot.raw if spot.kind is ScalarKind.INTEGER else spot.text(wanted)
    if text is None:
        return None
    size = read_size(text)
    if size is None:
        spot.error("InvalidSize", f"{show(text)} is not an amount of memory: write b, k, m or g")
    elif size == 0:
        spot.error("OutOfRange", f"is nothing: write {wanted}")
        return None
    return size


def read_limit(spot: Spot) -> int | None:
    """Read a container's limit of memory."""
    size = read_bytes(spot)
    if size is not None and size < LEAST_MEMORY:
        message = f"is {size} bytes: nothing runs in less than 6m; bytes are meant without a unit"
        spot.error("OutOfRange", message)
        return None
    return size


def read_container_gpus(spot: Spot) -> Literal["all"] | int | tuple[int, ...] | None:
    """Read the GPUs of a container: ``all``, a count, or ids."""
    if spot.kind is ScalarKind.INTEGER:
        return spot.integer(1)
    text = spot.text("all, a count such as 1, or ids such as '0,1'")
    if text is None:
        return None
    if len(text) > MAX_GPU_TEXT or not re.fullmatch(GPU_PATTERN, text):
        message = "write all, a count such as 1, or ids such as '0,1' without spaces"
        spot.error("InvalidGpus", f"{show(text)} names no GPUs: {message}")
        return None
    if text == "all":
        return "all"
    ids = tuple(int(one) for one in text.split(","))
    if len(set(ids)) < len(ids):
        spot.error("DuplicateEntry", f"{show(text)} lists a GPU twice: list each once")
        return None
    return ids


def check_container_gpus(container: Section, top: Section) -> None:
    """Check that GPUs, the runtime and the enclave's GPUs go together."""
    gpus = container.get("gpus")
    runtime_there, gpus_there = (key in container.fields for key in ("runtime", "gpus"))
    if runtime_there and not gpus_there and container.settled("runtime"):
        message = "needs gpus as well: write gpus: all, a count or ids"
        container.at("runtime").error("GpusMissing", message)
    if gpus_there and not runtime_there:
        container.at("gpus").error("RuntimeMissing", "needs runtime: nvidia as well: write it")
    if not top.settled("gpus") or not (runtime_there or gpus_there):
        return
    count = top.get("gpus", 0)
    if count == 0:
        place = container.at("gpus" if gpus_there else "runtime")
        message = "needs GPUs of the enclave: write gpus: 1 or gpus: 8 at the top of the file"
        place.error("NoGpus", message)
    elif isinstance(gpus, int) and gpus > count:
        container.at("gpus").error(
            "OutOfRange", f"is {gpus}: write at most {count}, which the enclave has"
        )
    elif isinstance(gpus, tuple) and max(gpus) >= count:
        message = f"names GPU {max(gpus)}: write ids from 0 to {count - 1}"
        container.at("gpus").error("OutOfRange", message)


def check_shares(container: Section, top: Section) -> None:
    """Check that a container's limits are within the enclave."""
    cpus, most = container.get("cpus"), top.get("cpus")
    if cpus is not None and most is not None and cpus > most:
        message = f"is {cpus:g}: the enclave has {most}, write at most that"
        container.at("cpus").error("OutOfRange", message)
    memory = top.get("memory")
    for key in ("memory", "shm_size"):
        size = container.get(key)
        if size is not None and memory is not None and size > memory * MEGABYTE:
            message = f"is more than the enclave's {memory} MB: write at most {memory}m"
            container.at(key).error("OutOfRange", message)


def check_gpu_use(top: Section, containers: tuple[Section, ...]) -> None:
    """Report GPUs that no container uses."""
    if top.get("gpus") and not any({"gpus", "runtime"} & set(one.fields) for one in containers):
        message = "no container uses them: write runtime: nvidia and gpus: all in one"
        top.at("gpus").warn("GpusUnused", message)
