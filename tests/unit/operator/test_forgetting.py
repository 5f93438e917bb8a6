"""What the operator remembers of an object goes with it: 10,000 Containers made and deleted.

The maps are found by walking the parts of the process, so that a new one is looked at too. Only the
API server is missing: events are fed to the cache as the watch does.
"""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator, Sized
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloister_clients.kube import KindRef
from cloister_clients.kube.kinds import POD, SERVICE
from cloister_crds.kinds import Container, Enclave
from cloister_crds.lifecycle.state.observed import (
    Known,
    LookupResult,
    Need,
    NeedRelease,
    SecretValues,
)
from cloister_operator.cache.projections import CONTAINER, ENCLAVE
from cloister_operator.cache.store import Store
from cloister_operator.context import ProcessContext
from cloister_operator.enclave.built import build_enclave
from cloister_operator.lookups.external_lookup import ExternalLookup
from cloister_operator.process.kopf_handlers import make_registry
from cloister_operator.workqueue.triggers import Key
from tests.support.builders.enclave_plans import SETTINGS, WEB, plan_of
from tests.support.builders.process import process_context
from tests.support.builders.resources import NOW, container_of, enclave_of
from tests.support.waiting import until

MANY = 5_000
"""Containers of each of the two rounds."""
BY_TIME = {"_tombstones", "_recent"}
"""Maps whose entries go after a time: `Store` and `LookupResolver` have their own tests."""
BUILT = build_enclave(plan_of(WEB), SETTINGS)
OURS = ("cloister_operator", "cloister_clients")


def maps(root: object) -> dict[str, int]:
    """Return the sizes of all collections that the parts of a process hold, by their path."""
    found: dict[str, int] = {}
    seen: set[int] = set()
    stack: list[tuple[str, Any]] = [("context", root)]
    while stack:
        path, part = stack.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        for name, value in attributes(part):
            if name in BY_TIME:
                continue
            if isinstance(value, Sized) and not isinstance(value, str | bytes | tuple | frozenset):
                found[f"{path}.{name}"] = len(value)
            if type(value).__module__.startswith(OURS):
                stack.append((f"{path}.{name}", value))
    return found


def attributes(part: object) -> Iterator[tuple[str, Any]]:
    """Return the attributes of an object, those in slots included."""
    yield from vars(part).items() if hasattr(part, "__dict__") else ()
    for kind in type(part).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(part, name):
                yield name, getattr(part, name)


def resident() -> int:
    """Return the resident memory of this process, in pages."""
    return int(Path("/proc/self/statm").read_text().split()[1])


def namespace_of(name: str) -> str:
    """Return the namespace of a Container: ten of them share one."""
    return f"org-{name[:-1]}"


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Return one result for every lookup: sources and registries are not tried here."""

    async def answer(_lookup: ExternalLookup, _need: Need) -> LookupResult:
        return Known(SecretValues(), NOW)

    monkeypatch.setattr(ExternalLookup, "__call__", answer)


class Round:
    """Makes Containers with all that belongs to them, and deletes them."""

    def __init__(self, context: ProcessContext) -> None:
        self.context = context
        self.version = 10
        container = container_of("web")
        self.bodies: dict[KindRef, dict[str, Any]] = {
            CONTAINER: container.manifest(),
            ENCLAVE: enclave_of(container, promoted=True).manifest(),
            POD: {"metadata": {}, "spec": {}, "status": {}},
            SERVICE: {"metadata": {}, "spec": {}},
        }

    async def run(self, names: list[str]) -> None:
        """Make and delete them, with the work in between."""
        for name in names:
            for ref in self.bodies:
                self.put(ref, name)
            self.remember(name)
        await until(self.looked_up(len(names)), within=60, every=0.01, what="all lookups")
        await self.work()
        for name in names:
            for ref in self.bodies:
                self.version += 1
                self.context.store.remove(ref, namespace_of(name), name, self.version)
        await self.work()

    def looked_up(self, count: int) -> Callable[[], Awaitable[bool]]:
        """Return the question whether so many results are cached."""

        async def all_there() -> bool:
            return len(self.context.resolver.results) == count

        return all_there

    def put(self, ref: KindRef, name: str) -> None:
        """Feed an object to the cache."""
        self.version += 1
        body = self.bodies[ref]
        own = {
            "name": name,
            "namespace": namespace_of(name),
            "uid": f"{ref.kind}-{name}",
            "resourceVersion": str(self.version),
        }
        self.context.store.put(ref, {**body, "metadata": {**body["metadata"], **own}})

    def remember(self, name: str) -> None:
        """Do what reconciles do that leaves something behind."""
        context, store = self.context, self.context.store
        entry = store.get(ENCLAVE, namespace_of(name), name)
        container = store.get(CONTAINER, namespace_of(name), name)
        assert entry is not None
        assert container is not None
        context.models.read(Container, container)
        enclave = context.models.read(Enclave, entry)
        context.memory.attempt(enclave).children_complete = True
        context.memory.keep_built(replace(BUILT, plan=replace(BUILT.plan, enclave=enclave)))
        need = NeedRelease(repo="acme/web", tag="v1", commit=None, request=name)
        context.resolver.request(need, Key("Container", namespace_of(name), name))

    async def work(self) -> None:
        """Reconcile everything, each key with a failure first, until nothing is due."""
        schedule, now, failed = self.context.queue.schedule, self.context.queue.now(), set()
        while len(schedule) or schedule.delayed:
            now += 1000.0
            while (key := schedule.take(now)) is not None:
                if key in failed:
                    schedule.done(key, now)
                else:
                    failed.add(key)
                    schedule.failed(key, now)
            await asyncio.sleep(0)


@pytest.mark.usefixtures("lookups")
async def test_what_is_remembered_of_an_object_goes_with_it(tmp_path: Path) -> None:
    context = process_context(str(tmp_path))
    try:
        make_registry(context)
        begun = Round(context)
        await begun.run(["warm"])
        before = maps(context)
        # The walk finds what the parts of the process hold, deep down too.
        assert {"context.memory._attempts", "context.resolver._results._owners"} <= before.keys()
        used = []
        for turn in range(2):
            await begun.run([f"c{turn}-{number}" for number in range(MANY)])
            gc.collect()
            used.append(resident())
        assert maps(context) == before
        assert used[1] < used[0] * 1.1
    finally:
        await context.aclose()


def test_a_removal_is_remembered_for_ten_minutes() -> None:
    now = [0.0]
    store = Store(timer=lambda: now[0])
    body = {"metadata": {"name": "n", "namespace": "ns", "uid": "u", "resourceVersion": "5"}}
    store.remove(SERVICE, "ns", "n", 6)
    assert not store.put(SERVICE, body)
    now[0] = 601.0
    assert store.put(SERVICE, body)
