"""The operator killed after each single write of the steps of a Container's life.

For every step the writes are counted on a Container that meets no crash. Then as many Containers
go through it at once, and for the n-th of them the operator dies after the n-th write. The next
operator takes over, and in the end everything about each is as about the first one.

Of the later life a seed draws some writes of each step; ``make test-crashes`` takes all of them.
"""

import os
import random
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cloister_clients.kube import KindRef
from cloister_clients.kube.kinds import NAMESPACE, of
from cloister_crds.kinds import Organization
from dev.cluster import Cluster
from tests.support.faults.crashing_operators import LeaderSuccession, proxied_installation
from tests.support.faults.fault_kinds import CrashPoints
from tests.support.lifecycles.end_states import differences, guards_of, plain
from tests.support.lifecycles.steps import (
    CUSTOM,
    LATER,
    STEPS,
    ContainerLifecycles,
    LifecycleStep,
    await_settled,
)
from tests.support.waiting import until_sync

FIRST, LATE = 17, 40
"""At least the writes of any step of the first life, and of the later one."""
SEED = int(os.environ.get("CLOISTER_CRASH_SEED") or 1)
"""Draws the writes of the later life."""
DRAWN = int(os.environ.get("CLOISTER_CRASH_POINTS") or 3)
"""How many writes of each step of the later life are drawn; with as many as `LATE` all are."""
pytestmark = pytest.mark.timeout(900 if DRAWN < LATE else 3000)


def crash_after_writes(
    succession: LeaderSuccession,
    lifecycles: ContainerLifecycles,
    step: LifecycleStep,
    *,
    most: int,
    drawn: int,
) -> dict[str, list[str]]:
    """Take one Container through a step without a crash, then one through each crash.

    Parameters
    ----------
    most
        At least the writes of the step.
    drawn
        How many Containers meet a crash, each after another write. With less than there may be
        writes a seed says after which.

    Returns
    -------
    dict[str, list[str]]
        Name of each Container that met a crash -> the writes until then.
    """
    before = lifecycles.writes("calm")
    step.do(lifecycles, "calm")
    (expected,) = await_settled(lifecycles, step, "calm")
    assert any(expected.values()) == (step.name != "delete")
    count = lifecycles.writes("calm") - before
    assert 0 < count <= most, f"{step.name} has {count} writes"
    names = [f"c{number:02}" for number in range(1, min(drawn, most) + 1)]
    points = list(range(1, most + 1))
    if drawn < most:
        chance = random.Random(f"{SEED} {step.name}")
        chance.shuffle(points)
        points.sort(key=lambda each: each > count)
    crash = CrashPoints(dict(zip(names, points, strict=False)), lifecycles.concerns)
    lifecycles.proxy.faults = [crash]
    for name in names:
        step.do(lifecycles, name)

    def over() -> bool:
        waiting = {n: crash.seen[n] for n in names if not crash.is_cut(n)}
        waiting = {n: seen for n, seen in waiting.items() if not lifecycles.reached(step, n)}
        assert not waiting, waiting
        return True

    until_sync(over, within=240, every=0.2, what=f"a crash in {step.name}")
    met = {name: seen for name, seen in crash.seen.items() if crash.is_cut(name)}
    succession.kill()
    crash.release()
    names.append("calm")
    found = await_settled(lifecycles, step, *names, within=240)
    for name, state in zip(names, found, strict=True):
        different = differences(state, expected)
        assert not different, f"{step.name}, crash after {met.get(name)}: {different}"
    assert met, f"no crash in {step.name}"
    return met


def walk(lifecycles: ContainerLifecycles, step: LifecycleStep, crashes: int) -> None:
    """Take the Containers of as many crashes, and the calm one, through a step without any."""
    names = ["calm", *(f"c{number:02}" for number in range(1, crashes + 1))]
    for name in names:
        step.do(lifecycles, name)
    await_settled(lifecycles, step, *names)


def kinds_of(met: dict[str, list[str]]) -> set[str]:
    """Return the kinds that were written until the crashes."""
    return {text.split()[1].split("/")[0] for seen in met.values() for text in seen}


def test_killed_after_each_write(
    succession: LeaderSuccession, lifecycles: ContainerLifecycles
) -> None:
    written: set[str] = set()
    for step in STEPS[:5]:
        written |= kinds_of(
            crash_after_writes(succession, lifecycles, step, most=FIRST, drawn=FIRST)
        )
    # Every kind of child that the file of these Containers needs was written and met a crash. A
    # Deployment may come after all of them: its counts are written in reconciles of their own.
    assert written >= {
        *("configmaps", "containers", "enclaves", "hostnameclaims", "pods", "secrets", "services")
    }, written


@pytest.fixture
def routed(
    api_cluster: Cluster, tmp_path: Path, image_of_life: str
) -> Iterator[ContainerLifecycles]:
    """Make an installation with a Gateway, in which custom domains may be used."""
    with proxied_installation(api_cluster, tmp_path, {"gateway": {"name": "public"}}) as place:
        lifecycles = ContainerLifecycles(
            place.installation, place.proxy, place.direct, image_of_life
        )
        lifecycles.prepare()
        entitled = {"spec": {"entitlements": {"domainSuffixes": [CUSTOM]}}}
        assert lifecycles.direct.patch(
            of(Organization), lifecycles.installation.slug, entitled
        ).is_success
        yield lifecycles


def test_killed_in_the_later_life(routed: ContainerLifecycles) -> None:
    sys.stderr.write(f"CLOISTER_CRASH_SEED={SEED} CLOISTER_CRASH_POINTS={DRAWN}\n")
    succession = LeaderSuccession(routed.installation, routed.proxy, routed.direct)
    succession.start()
    for step in LATER:
        if step in STEPS and DRAWN < LATE:
            # The first life meets its crashes there.
            walk(routed, step, DRAWN)
        else:
            crash_after_writes(succession, routed, step, most=LATE, drawn=DRAWN)


def isolation_of(lifecycles: ContainerLifecycles, slug: str) -> dict[str, Any]:
    """Return an Organization, its namespace and its guards, as far as they exist."""
    body = lifecycles.direct.get(of(Organization), slug)
    namespace = lifecycles.direct.get(NAMESPACE, slug)
    return {
        "status": plain(body["status"] if body else None, slug),
        "labels": plain(namespace["metadata"]["labels"] if namespace else None, slug),
        **guards_of(lifecycles.direct, slug),
    }


def test_killed_after_each_write_for_an_organization(
    succession: LeaderSuccession, lifecycles: ContainerLifecycles
) -> None:
    first = f"{lifecycles.installation.slug}-calm"
    names = [f"{lifecycles.installation.slug}-c{number}" for number in range(1, 8)]
    try:
        lifecycles.direct.create(*organization(first))
        expected = until_sync(
            partial(isolation_when_ready, lifecycles, first), what="a namespace with its guards"
        )
        crash = CrashPoints(
            {name: at for at, name in enumerate(names, start=1)},
            lambda request, name: request.writes and name in (request.name, request.namespace),
        )
        lifecycles.proxy.faults = [crash]
        for name in names:
            lifecycles.direct.create(*organization(name))
        until_sync(
            lambda: all(
                crash.is_cut(each) or isolation_when_ready(lifecycles, each) for each in names
            ),
            within=120,
            what=f"a crash at each write: {crash.seen}",
        )
        met = [name for name in names if crash.is_cut(name)]
        assert len(met) >= len(expected) - 1, crash.seen
        succession.kill()
        crash.release()
        for name in names:
            found = until_sync(
                partial(isolation_when_ready, lifecycles, name), within=120, what=name
            )
            assert not differences(found, expected), f"{name}: {crash.seen[name]}"
    finally:
        for name in (first, *names):
            lifecycles.direct.delete(of(Organization), name)
            lifecycles.direct.delete(NAMESPACE, name)


def organization(slug: str) -> tuple[KindRef, dict[str, Any]]:
    """Return an Organization that has a namespace of its own name."""
    return of(Organization), {"metadata": {"name": slug}, "spec": {"namespace": slug}}


def isolation_when_ready(lifecycles: ContainerLifecycles, slug: str) -> dict[str, Any]:
    """Return the same once the Organization is ready; empty = it is not."""
    found = isolation_of(lifecycles, slug)
    conditions = (found["status"] or {}).get("conditions", ())
    holding = {each["type"] for each in conditions if each["status"] == "True"}
    return found if holding == {"Ready", "WithinLimits"} else {}
