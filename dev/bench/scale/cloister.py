"""Cloister's side: Containers from creation to readiness, then a restart and a takeover."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from cloister_clients.kube.kinds import KindRef
from cloister_clients.kube.kinds import of as kind_of
from cloister_clients.kube.reflector import Reflector
from cloister_crds.kinds import Container
from dev.bench.scale.environment import REPO, TAG, BenchEnvironment, create_all
from dev.bench.scale.measurements import ProcessUsage, Readiness, Write, usage
from tests.support.programs.operator import OperatorProcess, manifest
from tests.support.waiting import until

CONTAINER: Final = kind_of(Container)
_QUIET_SECONDS: Final = 4.0
"""Seconds without a write after which no more are expected: aggregates are written after 2."""


@dataclass(frozen=True, slots=True)
class SideResult:
    """Result of one side of the comparison."""

    name: str
    """Name of the side."""
    readiness: Readiness
    """When its objects became ready."""
    writes: Counter[Write]
    """All writes to the API server from the first creation until the last write."""
    controller: ProcessUsage
    """CPU and memory of its controller until then."""
    others: dict[str, float]
    """processor time in seconds of the cluster's components meanwhile."""


async def run_cloister(environment: BenchEnvironment, count: int, *, within: float) -> SideResult:
    """Create Containers and wait until all are ready and nothing more is written.

    Parameters
    ----------
    within
        Timeout in seconds.

    Raises
    ------
    AssertionError
        When they are not ready in time; with the end of the operator's log.
    """
    operator = environment.installation.operator()
    await asyncio.to_thread(operator.wait_until_it_leads)
    readiness = Readiness(is_ready)

    def bodies() -> Iterator[tuple[KindRef, dict[str, Any]]]:
        for number in range(count):
            name = f"web-{number}"
            readiness.created[name] = time.monotonic()
            spec = {"repo": REPO, "tag": TAG, "host": environment.host}
            yield CONTAINER, manifest("Container", name, spec, environment.namespace_of(number))

    try:
        return await follow(
            environment,
            CONTAINER,
            readiness,
            bodies(),
            name="Cloister",
            pid=operator.pid,
            within=within,
        )
    except AssertionError as error:
        raise AssertionError(f"{error}\n{operator.text[-4000:]}") from error


async def follow(
    environment: BenchEnvironment,
    ref: KindRef,
    readiness: Readiness,
    bodies: Iterator[tuple[KindRef, dict[str, Any]]],
    *,
    name: str,
    pid: int,
    within: float,
) -> SideResult:
    """Create objects, watch them become ready, and wait until nothing more is written."""
    reflector = Reflector(environment.client, ref, readiness.observe)
    watching = asyncio.create_task(reflector.run())
    try:
        await until(_is_synced(reflector), within=30, what="the first list")
        components = ("kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler", "kwok")
        before = {each: usage(environment.pid(each)).processor for each in components}
        mark = environment.audit.mark()
        await create_all(environment.client, bodies)
        if not await reflector.until(lambda: readiness.complete, within=within):
            missing = sorted(readiness.created.keys() - readiness.seen.keys())
            raise AssertionError(f"{len(missing)} are not ready, such as {missing[:3]}")
        await quiet(environment)
    finally:
        watching.cancel()
    others = {each: usage(environment.pid(each)).processor - before[each] for each in components}
    return SideResult(name, readiness, environment.audit.writes(mark), usage(pid), others)


def _is_synced(reflector: Reflector[None]) -> Callable[[], Awaitable[bool]]:
    """Return a probe of whether a reflector's cache is complete."""

    async def ready() -> bool:
        return reflector.ready

    return ready


def is_ready(body: dict[str, Any]) -> bool:
    """Return whether a Container is Ready for its current spec."""
    status = body.get("status", {})
    ready = any(
        each["type"] == "Ready" and each["status"] == "True"
        for each in status.get("conditions", ())
    )
    return ready and status.get("observedGeneration") == body["metadata"]["generation"]


async def quiet(environment: BenchEnvironment, *, within: float = 300.0) -> None:
    """Wait until there are no more writes except Leases and node statuses."""
    seen, since, mark = -1, time.monotonic(), environment.audit.mark()

    async def nothing_new() -> bool:
        nonlocal seen, since
        found = sum(
            number
            for (_, _, resource), number in environment.audit.writes(mark).items()
            if resource not in {"leases", "nodes/status"}
        )
        if found != seen:
            seen, since = found, time.monotonic()
        return time.monotonic() - since > _QUIET_SECONDS

    await until(nothing_new, within=within, every=0.5, what="an end of writes")


@dataclass(frozen=True, slots=True)
class Takeover:
    """Times and writes of an operator that takes over from another."""

    working: float
    """Seconds until its cache was complete."""
    caught_up: float
    """Seconds until it had looked at everything."""
    writes: Counter[Write]
    """Writes of the operator until then."""


async def take_over(environment: BenchEnvironment, count: int, *, killed: bool) -> Takeover:
    """Let another operator take over from the running one.

    Parameters
    ----------
    killed
        True: a standby with a complete cache waits while the leader is killed. False:
        the first is stopped by SIGTERM, and then the second is started.
    """
    first = environment.installation.processes[-1]
    mark = environment.audit.mark()
    if killed:
        second = environment.installation.operator()
        await until(lambda: _reports(second, "standby"), within=60, what="a standby operator")
        await until(lambda: _caches_agree(second, first), within=300, what="a complete cache")
        began = time.monotonic()
        first.kill()
    else:
        await asyncio.to_thread(first.stop)
        began = time.monotonic()
        second = environment.installation.operator()
    await until(lambda: _reports(second, "working"), within=120, every=0.05, what="a leader")
    working = time.monotonic() - began
    await until(lambda: _has_reconciled(second, count), within=300, every=0.1, what="catching up")
    caught_up = time.monotonic() - began
    writes = environment.audit.writes(mark)
    ours = {each: number for each, number in writes.items() if each[0] == "cloister-operator"}
    return Takeover(working, caught_up, Counter(ours))


async def _reports(operator: OperatorProcess, word: str) -> bool:
    """Return whether an operator's readiness response has a word."""
    assert operator.running, operator.text[-4000:]
    _, text = await asyncio.to_thread(operator.request, "/readyz")
    return word in text


async def _caches_agree(second: OperatorProcess, first: OperatorProcess) -> bool:
    """Return whether the caches of two operators have equally many objects of each kind."""
    copies = []
    for operator in (second, first):
        assert operator.running, operator.text[-4000:]
        _, text = await asyncio.to_thread(operator.request, "/metrics")
        copies.append(sorted(re.findall(r"(?m)^cloister_operator_objects.*$", text)))
    return copies[0] == copies[1] != []


async def _has_reconciled(operator: OperatorProcess, count: int) -> bool:
    """Return whether an operator has reconciled every Container and Enclave and nothing is due."""
    assert operator.running, operator.text[-4000:]
    _, text = await asyncio.to_thread(operator.request, "/metrics")
    metrics = {name: float(value) for name, value in re.findall(r"(?m)^(\S+) (\S+)$", text)}
    reconciles = {
        kind: sum(
            value
            for name, value in metrics.items()
            if name.startswith("reconcile_total") and f'kind="{kind}"' in name
        )
        for kind in ("Container", "Enclave")
    }
    due = sum(value for name, value in metrics.items() if name.startswith("workqueue_depth"))
    return min(reconciles.values()) >= count and due == 0
