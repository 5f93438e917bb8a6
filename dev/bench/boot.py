"""A Container from create to Ready beside a bare Pod: ``python -m dev.bench boot [--rounds N]``.

On a real node, images present, in each round after the other: a bare Pod with its Service, the same
with a volume, the same with one native side-car, and a Container. Each is created, watched until it
is Ready, and deleted, and the next begins when it is gone. For the Container each step is printed
as it was first seen by a watch, the kubelet's own times being whole seconds.
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import click

from cloister_clients.kube import KubeClient, KubeConfig
from cloister_clients.kube.kinds import POD, SERVICE, KindRef
from cloister_clients.kube.kinds import of as kind_of
from cloister_clients.kube.reflector import Reflector
from cloister_crds.kinds import Container, Enclave
from dev.bench._enclaves import EnclaveBench, open_bench, synced

CONTAINER: Final = kind_of(Container)
ENCLAVE: Final = kind_of(Enclave)
TIMES: Final = 1.5
"""Maximum of the time of a Container, as a multiple of that of a bare Pod."""
MORE: Final = 2.0
"""Maximum of seconds that a Container may take longer than a bare Pod."""
WITHIN: Final = 180.0
BARE: Final = "a bare Pod"
VOLUME: Final = "a Pod with a volume"
SIDE_CAR: Final = "a Pod with one native side-car"
OURS: Final = "a Container"

Object = dict[str, Any]


def main(options: Sequence[str] = ()) -> int:
    """Run the benchmark with command line options; return 1 when a target is missed.

    Parameters
    ----------
    options
        Such as ``--rounds 3``.
    """
    result: int = command.main(list(options), prog_name="boot", standalone_mode=False)
    return result


@click.command()
@click.option("--rounds", default=7, show_default=True, help="Number of rounds.")
@click.option("--name", default="bench-boot", show_default=True, help="Name of the cluster.")
def command(*, rounds: int, name: str) -> int:
    """Measure boots."""
    with open_bench(name, "30s") as bench:
        found = asyncio.run(measure(bench, rounds))
    return report(found)


@dataclass(slots=True)
class Timeline:
    """When each step of one boot was first seen, by the clock of this process."""

    began: float = field(default_factory=time.monotonic)
    """When the creation began."""
    steps: dict[str, float] = field(default_factory=dict)
    """Seconds after that, by step, in the order in which they were seen."""

    def note(self, steps: Iterator[str]) -> None:
        """Record the steps that are seen for the first time."""
        for step in steps:
            self.steps.setdefault(step, time.monotonic() - self.began)


async def measure(bench: EnclaveBench, rounds: int) -> dict[str, list[Timeline]]:
    """Run the rounds; the first warms up and does not count."""
    config = KubeConfig.from_file(bench.cluster.kubeconfig)
    async with KubeClient(config, field_manager="bench", user_agent="cloister-bench") as client:
        boots: dict[str, Callable[[str], list[tuple[KindRef, Object]]]] = {
            BARE: lambda name: bare(bench, bench.bare_pod(name)),
            VOLUME: lambda name: bare(bench, bench.bare_pod(name, volume=True)),
            SIDE_CAR: lambda name: bare(bench, bench.bare_pod(name, side_cars=1)),
            OURS: lambda name: [(CONTAINER, bench.container(name))],
        }
        found: dict[str, list[Timeline]] = {title: [] for title in boots}
        for number in range(rounds + 1):
            for place, (title, objects) in enumerate(boots.items()):
                timeline = await boot(client, bench.namespace, objects(f"boot-{number}-{place}"))
                if number:
                    found[title].append(timeline)
        return found


def bare(bench: EnclaveBench, pod: Object) -> list[tuple[KindRef, Object]]:
    """Return a bare Pod and its Service."""
    return [(SERVICE, bench.service(pod["metadata"]["name"])), (POD, pod)]


async def boot(
    client: KubeClient, namespace: str, objects: list[tuple[KindRef, Object]]
) -> Timeline:
    """Create objects, watch until the last is Ready, and delete them."""
    ref, body = objects[-1]
    name = body["metadata"]["name"]
    timeline = Timeline()

    def observe(kind: str) -> Callable[[Object], None]:
        return lambda seen: timeline.note(steps_of(kind, seen, name))

    watched = {
        each: Reflector(client, each, observe(each.kind)) for each in (POD, ENCLAVE, CONTAINER)
    }
    watching = [asyncio.create_task(each.run()) for each in watched.values()]
    try:
        for reflector in watched.values():
            await synced(reflector)
        timeline.began = time.monotonic()
        for each, manifest in objects:
            await client.create(each, manifest)
        done = f"{ref.kind} Ready"
        if not await watched[ref].until(lambda: done in timeline.steps, within=WITHIN):
            raise AssertionError(f"{name} is not Ready, but {list(timeline.steps)}")
        for each, _ in objects:
            await client.delete(each, name, namespace)
        gone = watched[POD]
        if not await gone.until(lambda: not _pods_of(gone, namespace, name), within=WITHIN):
            raise AssertionError(f"the Pod of {name} stays")
    finally:
        for task in watching:
            task.cancel()
    return timeline


def steps_of(kind: str, body: Object, name: str) -> Iterator[str]:
    """Yield the steps that an object shows, if it belongs to the boot of that name."""
    if not _belongs(body["metadata"]["name"], name):
        return
    yield f"{kind} exists"
    status = body.get("status", {})
    for condition in status.get("conditions", ()):
        if condition["status"] == "True" and condition["type"] in _CONDITIONS:
            yield f"{kind} {_CONDITIONS[condition['type']]}"
    if kind != POD.kind:
        return
    for each in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        if each["state"].keys() & {"running", "terminated"}:
            yield f"{each['name']} started"
        if each.get("ready") and "running" in each["state"]:
            yield f"{each['name']} ready"


_CONDITIONS: Final = {
    "PodScheduled": "scheduled",
    "PodReadyToStartContainers": "sandbox",
    "Ready": "Ready",
}


def _belongs(candidate: str, name: str) -> bool:
    """Return whether an object is that of a boot, or one that is named after it."""
    return candidate == name or candidate.startswith(f"{name}-")


def _pods_of(pods: Reflector[None], namespace: str, name: str) -> list[str]:
    return [each for each in pods.in_namespace(namespace) if _belongs(each, name)]


def report(found: dict[str, list[Timeline]]) -> int:
    """Print tables, and return whether a target is missed."""
    ready = {
        title: [list(each.steps.values())[-1] for each in timelines]
        for title, timelines in found.items()
    }
    bare_time = statistics.median(ready[BARE])
    print("| from create to Ready | median | least, most | beside a bare Pod |")
    print("|---|---|---|---|")
    for title, times in ready.items():
        median = statistics.median(times)
        print(
            f"| {title} | {median:.2f} s | {min(times):.2f}, {max(times):.2f} s "
            f"| {median / bare_time:.2f} times |"
        )
    steps: dict[str, list[float]] = {}
    for timeline in found[OURS]:
        for step, at in timeline.steps.items():
            steps.setdefault(step, []).append(at)
    print("\n| step of a Container | first seen after (median) | since the step before |")
    print("|---|---|---|")
    before = 0.0
    for step, at in sorted(
        ((name, statistics.median(each)) for name, each in steps.items()), key=lambda each: each[1]
    ):
        print(f"| {step} | {at * 1000:.0f} ms | {(at - before) * 1000:.0f} ms |")
        before = at
    ours = statistics.median(ready[OURS])
    return int(ours > TIMES * bare_time or ours - bare_time > MORE)
