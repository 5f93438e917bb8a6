"""The operator killed after each single write of the steps of a Container's life.

For every step the writes are counted on a Container that meets no crash. Then as many Containers
go through it at once, and for the n-th of them the operator dies after the n-th write. The next
operator takes over, and in the end everything about each is as about the first one.
"""

from functools import partial
from typing import Any

import pytest

from cloister_clients.kube import KindRef
from cloister_clients.kube.kinds import NAMESPACE, of
from cloister_crds.kinds import Organization
from tests.support.crashes import Succession
from tests.support.end_states import differences, fences, plain
from tests.support.faults import CrashPoints
from tests.support.lives import STEPS, Life, Step, settled
from tests.support.waiting import until_sync

pytestmark = pytest.mark.timeout(900)
CONTAINERS = 18
"""More than the writes of any step."""


def crash_after_each_write(succession: Succession, life: Life, step: Step) -> dict[str, list[str]]:
    """Take one Container through a step without a crash, then one through each crash.

    Returns
    -------
    dict[str, list[str]]
        Name of each Container that met a crash -> the writes until then.
    """
    before = len(life.proxy.written("calm"))
    step.do(life, "calm")
    (expected,) = settled(life, step, "calm")
    assert any(expected.values()) == (step.name != "delete")
    count = len(life.proxy.written("calm")) - before
    assert 0 < count < CONTAINERS - 1, f"{step.name} has {count} writes"
    names = [f"c{number:02}" for number in range(1, CONTAINERS)]
    crash = CrashPoints({name: at for at, name in enumerate(names, start=1)})
    life.proxy.faults = [crash]
    for name in names:
        step.do(life, name)

    def over() -> bool:
        waiting = {n: crash.seen[n] for n in names if not crash.is_cut(n)}
        waiting = {n: seen for n, seen in waiting.items() if not life.reached(step, n)}
        assert not waiting, waiting
        return True

    until_sync(over, within=240, every=0.2, what=f"a crash at each write of {step.name}")
    met = {name: seen for name, seen in crash.seen.items() if crash.is_cut(name)}
    succession.kill()
    crash.release()
    found = settled(life, step, *names, within=240)
    for name, state in zip(names, found, strict=True):
        different = differences(state, expected)
        assert not different, f"{step.name}, crash after {met.get(name)}: {different}"
    assert settled(life, step, "calm") == [expected]
    return met


def test_killed_after_each_write(succession: Succession, life: Life) -> None:
    written: set[str] = set()
    for step in STEPS[:5]:
        met = crash_after_each_write(succession, life, step)
        assert met, f"no crash in {step.name}"
        written |= {" ".join(text.split("/")[::2][:1]) for seen in met.values() for text in seen}
    # Every kind of child that the file of these Containers needs was written and met a crash. A
    # Deployment may come after all of them: its counts are written in passes of their own.
    assert {text.split()[1] for text in written} >= {
        *("configmaps", "containers", "enclaves", "hostnameclaims", "pods", "secrets", "services")
    }, written


def fenced(life: Life, slug: str) -> dict[str, Any]:
    """Answer what is there of an Organization, its namespace and what guards it."""
    body = life.direct.get(of(Organization), slug)
    namespace = life.direct.get(NAMESPACE, slug)
    return {
        "status": plain(body["status"] if body else None, slug),
        "labels": plain(namespace["metadata"]["labels"] if namespace else None, slug),
        **fences(life.direct, slug),
    }


def test_killed_after_each_write_for_an_organization(succession: Succession, life: Life) -> None:
    first = f"{life.installation.slug}-calm"
    names = [f"{life.installation.slug}-c{number}" for number in range(1, 8)]
    try:
        life.direct.create(*organization(first))
        expected = until_sync(partial(is_fenced, life, first), what="a namespace with its fences")
        crash = CrashPoints(
            {name: at for at, name in enumerate(names, start=1)},
            lambda ask, name: ask.writes and name in (ask.name, ask.namespace),
        )
        life.proxy.faults = [crash]
        for name in names:
            life.direct.create(*organization(name))
        until_sync(
            lambda: all(crash.is_cut(each) or is_fenced(life, each) for each in names),
            within=120,
            what=f"a crash at each write: {crash.seen}",
        )
        met = [name for name in names if crash.is_cut(name)]
        assert len(met) >= len(expected) - 1, crash.seen
        succession.kill()
        crash.release()
        for name in names:
            found = until_sync(partial(is_fenced, life, name), within=120, what=name)
            assert not differences(found, expected), f"{name}: {crash.seen[name]}"
    finally:
        for name in (first, *names):
            life.direct.delete(of(Organization), name)
            life.direct.delete(NAMESPACE, name)


def organization(slug: str) -> tuple[KindRef, dict[str, Any]]:
    """Answer an Organization that has a namespace of its own name."""
    return of(Organization), {"metadata": {"name": slug}, "spec": {"namespace": slug}}


def is_fenced(life: Life, slug: str) -> dict[str, Any]:
    """Answer what is there once the Organization is ready; empty = it is not."""
    found = fenced(life, slug)
    conditions = (found["status"] or {}).get("conditions", ())
    return found if [each["status"] for each in conditions] == ["True"] else {}
