"""What an idle enclave costs its node: ``python -m dev.bench idle [--count N] [--interval 30s]``.

A real node, on which nothing else runs, then N bare Pods, then N enclaves of the same image beside
them. In each state the processor time of a minute: of the Pods' control groups, of their
containerd-shims with all children that have ended, of the kubelet and of containerd. What the
enclaves add is divided by their number.
"""

import asyncio
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from cloister_clients.kube import KubeClient, KubeConfig
from cloister_clients.kube.kinds import POD
from cloister_clients.kube.kinds import of as kind_of
from cloister_clients.kube.reflector import Reflector
from cloister_crds.kinds import Container
from dev.bench._enclaves import EnclaveBench, open_bench, synced
from dev.cluster.node import cgroup_root
from dev.cluster.requirements import CGROUPS

CONTAINER: Final = kind_of(Container)
SHARE: Final = 0.3
"""Maximum of an idle enclave, in percent of a core."""
MEMORY: Final = 40.0
"""Maximum of the memory of all containers of ours in an enclave, in MiB."""
WITHIN: Final = 300.0
SETTLE: Final = 20.0
"""Seconds after the last Pod is Ready before the measurement begins."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_NANO: Final = 1e9
_MICRO: Final = 1e6
_MEBI: Final = 1024 * 1024
PARTS: Final = ("control groups of the Pods", "containerd-shims and runc", "kubelet", "containerd")

Object = dict[str, Any]


def main(options: Sequence[str] = ()) -> int:
    """Run the benchmark with command line options; return 1 when a target is missed.

    Parameters
    ----------
    options
        Such as ``--count 3``.
    """
    result: int = command.main(list(options), prog_name="idle", standalone_mode=False)
    return result


@click.command()
@click.option("--count", default=8, show_default=True, help="Pods of each sort.")
@click.option("--interval", default="30s", show_default=True, help="Interval of health checks.")
@click.option("--seconds", default=60.0, show_default=True, help="Length of each measurement.")
@click.option("--name", default="bench-idle", show_default=True, help="Name of the cluster.")
def command(*, count: int, interval: str, seconds: float, name: str) -> int:
    """Measure idle enclaves."""
    with open_bench(name, interval) as bench:
        return asyncio.run(measure(bench, count, seconds))


async def measure(bench: EnclaveBench, count: int, seconds: float) -> int:
    """Measure the node empty, with bare Pods, and with enclaves; print a table."""
    config = KubeConfig.from_file(bench.cluster.kubeconfig)
    async with KubeClient(config, field_manager="bench", user_agent="cloister-bench") as client:
        pods: dict[str, Object] = {}
        reflector = Reflector(
            client, POD, lambda body: pods.update({body["metadata"]["name"]: body})
        )
        watching = asyncio.create_task(reflector.run())
        try:
            await synced(reflector)
            states = [await rates(bench, pods, seconds)]
            for number in range(count):
                await client.create(POD, bench.bare_pod(f"bare-{number}"))
            await ready(reflector, pods, "bare-", count)
            states.append(await rates(bench, pods, seconds))
            for number in range(count):
                await client.create(CONTAINER, bench.container(f"ours-{number}"))
            await ready(reflector, pods, "ours-", count)
            states.append(await rates(bench, pods, seconds))
        finally:
            watching.cancel()
    ours = [body for name, body in pods.items() if name.startswith("ours-")]
    return report(states, count, [memory(bench, body) for body in ours])


async def ready(
    reflector: Reflector[None], pods: Mapping[str, Object], prefix: str, count: int
) -> None:
    """Wait until so many Pods are Ready, and then until they have settled."""

    def all_ready() -> bool:
        return (
            sum(is_ready(body) for name, body in pods.items() if name.startswith(prefix)) == count
        )

    if not await reflector.until(all_ready, within=WITHIN):
        raise AssertionError(f"not all of {prefix} are Ready: {sorted(pods)}")
    await asyncio.sleep(SETTLE)


def is_ready(body: Object) -> bool:
    """Return whether a Pod is Ready."""
    conditions = body.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def rates(bench: EnclaveBench, pods: Mapping[str, Object], seconds: float) -> list[float]:
    """Return the share of a core that each part takes, in percent."""
    names = [name for name in pods if name.startswith(("bare-", "ours-"))]
    before, began = consumed(bench, pods, names), time.monotonic()
    await asyncio.sleep(seconds)
    passed = time.monotonic() - began
    after = consumed(bench, pods, names)
    return [100 * (late - early) / passed for early, late in zip(before, after, strict=True)]


def consumed(bench: EnclaveBench, pods: Mapping[str, Object], names: Iterable[str]) -> list[float]:
    """Return the seconds of processor time that each part has used so far."""
    places = [pod_group(bench, pods[name]) for name in names]
    shims = [shim for place in places for shim in shims_of(place)]
    return [
        sum(group_time(place) for place in places),
        sum(process_time(pid, children=True) for pid in shims),
        process_time(bench.pid("kubelet")),
        process_time(bench.pid("containerd")),
    ]


@dataclass(frozen=True, slots=True)
class PodGroup:
    """The control groups of a Pod."""

    processor: Path
    """That of the controller cpuacct, or the one of cgroup v2."""
    memory: Path
    """That of the controller memory, or the one of cgroup v2."""
    containers: tuple[str, ...]
    """The runtime's ids of its containers."""


def pod_group(bench: EnclaveBench, body: Object) -> PodGroup:
    """Find the control groups of a Pod."""
    uid, root = body["metadata"]["uid"], cgroup_root(bench.cluster.name).lstrip("/")
    unified = (CGROUPS / "cgroup.controllers").exists()

    def place(controller: str) -> Path:
        top = CGROUPS / root if unified else CGROUPS / controller / root
        return next(each for each in top.rglob(f"pod{uid}") if each.is_dir())

    status = body["status"]
    statuses = (*status.get("initContainerStatuses", ()), *status["containerStatuses"])
    ids = tuple(
        each["containerID"].rpartition("/")[2] for each in statuses if "containerID" in each
    )
    return PodGroup(place("cpuacct"), place("memory"), ids)


def group_time(group: PodGroup) -> float:
    """Return the seconds of processor time of a Pod's processes (cgroups, v1 and v2)."""
    usage = group.processor / "cpuacct.usage"
    if usage.exists():
        return int(usage.read_text()) / _NANO
    lines = dict(line.split() for line in (group.processor / "cpu.stat").read_text().splitlines())
    return int(lines["usage_usec"]) / _MICRO


def shims_of(group: PodGroup) -> list[int]:
    """Return the process ids of the containerd-shims of a Pod: parents of its first processes."""
    found = set()
    for file in group.memory.rglob("cgroup.procs"):
        for pid in file.read_text().split():
            parent = _stat(int(pid))[1]
            if Path(f"/proc/{parent}/comm").read_text().startswith("containerd-shim"):
                found.add(int(parent))
    return sorted(found)


def process_time(pid: int, *, children: bool = False) -> float:
    """Return the processor time of a process, and of its children that have ended (proc(5))."""
    fields = _stat(pid)[11:15] if children else _stat(pid)[11:13]
    return sum(map(int, fields)) / _TICKS


def _stat(pid: int) -> list[str]:
    """Return the fields of ``/proc/PID/stat`` after the name of the command."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def memory(bench: EnclaveBench, body: Object) -> float:
    """Return the MiB of our containers in a Pod, without file cache that can be dropped."""
    group = pod_group(bench, body)
    status = body["status"]
    found = 0.0
    for each in (*status.get("initContainerStatuses", ()), *status["containerStatuses"]):
        identifier = each.get("containerID", "").rpartition("/")[2]
        for place in group.memory.glob(f"*{identifier}*") if each["name"] != "web" else ():
            found += working_set(place)
    return found / _MEBI


def working_set(place: Path) -> int:
    """Return the bytes of a control group without inactive file cache (cgroups, v1 and v2)."""
    lines = dict(line.split() for line in (place / "memory.stat").read_text().splitlines())
    for total, inactive in (
        ("memory.usage_in_bytes", "total_inactive_file"),
        ("memory.current", "inactive_file"),
    ):
        if (place / total).exists():
            return int((place / total).read_text()) - int(lines[inactive])
    raise FileNotFoundError(f"{place} shows no memory")


def report(states: list[list[float]], count: int, memories: list[float]) -> int:
    """Print a table, and return whether a target is missed."""
    empty, bare, ours = states
    print("| percent of a core for each | bare Pod | enclave |")
    print("|---|---|---|")
    totals = [0.0, 0.0]
    for place, part in enumerate(PARTS):
        cells = [(bare[place] - empty[place]) / count, (ours[place] - bare[place]) / count]
        totals = [total + cell for total, cell in zip(totals, cells, strict=True)]
        print(f"| {part} | {cells[0]:.3f} | {cells[1]:.3f} |")
    print(f"| in all | {totals[0]:.3f} | {totals[1]:.3f} |")
    largest = max(memories)
    print(f"\nmemory of our containers: {min(memories):.1f} to {largest:.1f} MiB an enclave")
    return int(totals[1] > SHARE or largest > MEMORY)
