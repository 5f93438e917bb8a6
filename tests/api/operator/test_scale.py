"""A hundred Containers at once on simulated nodes: all become ready, and with few writes.

The API server's own audit log counts the writes, so that nothing that the operator says of itself
is believed. How fast it goes is for ``python -m dev.bench scale`` alone.
"""

import asyncio
import re
from collections import Counter, defaultdict
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from dev.bench.scale.cloister import run_cloister, take_over
from dev.bench.scale.environment import BenchEnvironment, clear, open_environment
from dev.bench.scale.measurements import AuditLog, Write
from dev.cluster import Cluster
from tests.support.programs.operator import operator_lock

COUNT = 100
WORKERS = 16
"""Reconciles at once, the default of the operator's settings."""
FEW = 5
"""Events of the Organization and the Host, at most."""
MOST = 12
"""Writes for a Container from its creation to readiness, at most; 11 are usual."""
MEAN = 9
"""Writes for a Container at most, on an average of all, refused ones too; 7 where the machine is
slow."""
EACH = Counter(
    {
        ("create", "enclaves"): 1,
        ("create", "configmaps"): 1,
        ("create", "pods"): 1,
        ("create", "services"): 1,
        # One more than usual where the operator sees the Pod bound before it sees it run.
        ("patch", "enclaves/status"): 4,
        ("patch", "containers/status"): 4,
    }
)
"""All writes that one Container may cost the operator, beside refused ones; the table in
docs/operator.md has them."""
AGGREGATES = ("organizations/status", "deployments/status", "hosts/status")
PAUSE = 1.5
"""Seconds between the requests of two writes of an aggregate: 2 less what one may be late."""


class Ran:
    """The results of a run."""

    def __init__(self, environment: BenchEnvironment, begin: int) -> None:
        self.events = [
            each
            for each in environment.audit.events(begin)
            if each["userAgent"].split("/")[0] == "cloister-operator"
        ]
        """Writes of the operator from the first creation until nothing more came."""
        self.reconciles = 0
        """Reconciles of Containers until then."""
        self.restart: Counter[Write] = Counter()
        """Writes of the operator that came after it."""


async def run(cluster: Cluster, folder: Path) -> Ran:
    audit = AuditLog(cluster.layout.audit_log)
    async with open_environment(
        cluster, folder, count=COUNT, per_organization=COUNT
    ) as environment:
        begin = audit.mark()
        side = await run_cloister(environment, COUNT, within=240)
        assert side.readiness.complete
        found = Ran(environment, begin)
        _, text = environment.installation.processes[-1].request("/metrics")
        found.reconciles = sum(
            int(float(line.split()[-1]))
            for line in text.splitlines()
            if line.startswith("reconcile_total{") and 'kind="Container"' in line
        )
        found.restart = (await take_over(environment, COUNT, killed=False)).writes
        await clear(environment)
    return found


@pytest.fixture(scope="module")
def ran(simulated_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("scale")
    with operator_lock(simulated_cluster.name):
        return asyncio.run(run(simulated_cluster, folder))


def written(event: dict[str, Any]) -> tuple[str, str]:
    """Return the verb and the resource of a write, with its subresource."""
    place = event["objectRef"]
    return event["verb"], "/".join(filter(None, (place["resource"], place.get("subresource"))))


def owner_of(event: dict[str, Any]) -> str | None:
    """Return the Container that a write is for; None = it is for many."""
    place = event["objectRef"]
    found = re.match(r"web-\d+", place.get("name", ""))
    return found[0] if found and place["resource"] != "deployments" else None


def test_a_container_costs_few_writes(ran: Ran) -> None:
    each: defaultdict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    conflicts = 0
    for event in ran.events:
        owner = owner_of(event)
        if event["responseStatus"]["code"] == HTTPStatus.CONFLICT:
            conflicts += 1
        elif owner is not None:
            each[owner][written(event)] += 1
    assert len(each) == COUNT
    costly = {name: +(writes - EACH) for name, writes in each.items() if writes - EACH}
    assert not costly
    assert EACH.total() == MOST
    # Progress is not written while the operator is busy. A status that was decided on a copy that
    # lags is refused and decided again.
    assert sum(writes.total() for writes in each.values()) + conflicts <= MEAN * COUNT


def test_no_writes_for_each_container_beside_its_own_objects(ran: Ran) -> None:
    shared = Counter(written(event) for event in ran.events if owner_of(event) is None)
    assert set(shared) <= {
        ("create", "deployments"),
        ("create", "rolebindings"),
        ("patch", "organizations"),
        ("patch", "configmaps"),
        ("create", "networkpolicies"),
        ("create", "poddisruptionbudgets"),
        ("create", "resourcequotas"),
        ("patch", "resourcequotas"),
        ("create", "events"),
        *(("patch", each) for each in AGGREGATES),
    }
    # All Containers are of one repository; each worker may try to create its Deployment.
    assert shared["create", "deployments"] <= WORKERS
    # One Event reports that a Container is ready; the audit log does not name its object.
    assert shared["create", "events"] <= COUNT + FEW
    # The finalizer that guards the Organization, and the rights of operator and facade in it.
    assert shared["patch", "organizations"] <= 1
    # The settings that the facade reads.
    assert shared["patch", "configmaps"] <= 1
    assert shared["create", "rolebindings"] <= 2
    assert shared["create", "networkpolicies"] <= 2
    assert shared["create", "poddisruptionbudgets"] <= 1
    assert shared["create", "resourcequotas"] <= 1
    # Once the cluster counts the kinds that it names.
    assert shared["patch", "resourcequotas"] <= 1


@pytest.mark.parametrize("resource", AGGREGATES)
def test_a_count_is_written_at_most_every_two_seconds(ran: Ran, resource: str) -> None:
    known: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    counts: defaultdict[str, dict[str, int]] = defaultdict(dict)
    last: dict[str, datetime] = {}
    for event in ran.events:
        if (
            written(event) != ("patch", resource)
            or event["responseStatus"]["code"] != HTTPStatus.OK
        ):
            continue
        name = event["objectRef"]["name"]
        at = datetime.fromisoformat(event["requestReceivedTimestamp"])
        patch = event["requestObject"]["status"]
        counts[name] |= patch.get("counts", {})
        news = beside_counts(patch) | {"any": any(counts[name].values())}
        # What is more than a number is not throttled: a new spec, a changed condition, the first.
        if name in last and not news.items() - known[name].items():
            pause = (at - last[name]).total_seconds()
            assert pause >= PAUSE, (name, pause, event["requestObject"])
        known[name] |= news
        last[name] = at
    assert last


def beside_counts(patch: dict[str, Any]) -> dict[str, Any]:
    """Return what a patch of a status changes beside numbers, by its name."""
    plain = ("observedGeneration", "lastHandledRequest")
    seen = {name: patch[name] for name in plain if name in patch}
    conditions = patch.get("conditions", ())
    return seen | {each["type"]: (each["status"], each["reason"]) for each in conditions}


def test_a_reconcile_writes_one_status(ran: Ran) -> None:
    patches = sum(written(event) == ("patch", "containers/status") for event in ran.events)
    assert COUNT <= patches <= ran.reconciles


def test_a_restart_writes_nothing_for_containers_that_are_ready(ran: Ran) -> None:
    resources = {resource for _, _, resource in ran.restart}
    once = {
        "configmaps",
        "networkpolicies",
        "poddisruptionbudgets",
        "resourcequotas",
        "rolebindings",
    }
    assert resources <= once
