"""Two operators and one Lease: how soon the second one works, and what the first can still do."""

import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cloister_clients.kube import KindRef
from cloister_clients.kube.kinds import LEASE, NAMESPACE, NETWORK_POLICY, POD_DISRUPTION_BUDGET, of
from cloister_crds.kinds import Organization
from cloister_crds.names import MANAGED_BY_LABEL
from dev.cluster import Cluster
from tests.support.faults.crashing_operators import ProxiedInstallation, proxied_installation
from tests.support.faults.fault_kinds import ApiRequest, HeldWrites
from tests.support.lifecycles.end_states import guards_of
from tests.support.lifecycles.steps import STEPS, ContainerLifecycles, await_settled
from tests.support.programs.operator import OperatorProcess
from tests.support.waiting import until_sync

pytestmark = pytest.mark.timeout(600)
TAKEOVER = 30.0
"""Seconds from the death of a leader until another one leads, with the default settings and on a
busy machine: the Lease lasts for fifteen, and is asked for every two."""
SHORT_LEASE = {"durationSeconds": 8, "renewSeconds": 6, "retrySeconds": 0.3}


def standby(place: ProxiedInstallation, name: str) -> OperatorProcess:
    process = place.operator(name)
    until_sync(lambda: process.request("/readyz") == (200, "standby\n"), what="a standby")
    return process


def holder(place: ProxiedInstallation) -> str:
    lease = place.direct.get(LEASE, "cloister-operator", place.installation.system)
    return "" if lease is None else str(lease["spec"]["holderIdentity"])


def test_takeover_after_a_kill(api_cluster: Cluster, tmp_path: Path) -> None:
    with proxied_installation(api_cluster, tmp_path, {"lease": {}}) as place:
        first = place.operator("first")
        first.wait_until_it_leads()
        standby(place, "second")
        before = holder(place)
        first.kill()
        killed = time.monotonic()
        until_sync(lambda: holder(place) != before, within=TAKEOVER, what="another leader")
        took = time.monotonic() - killed
        place.installation.create_container("web", repo="acme/none", tag="v1")
        place.installation.wait_for("web", "Stalled")
        assert place.proxy.written("web", client="second"), f"led after {took:.1f} s, wrote nothing"


GUARDS = (NETWORK_POLICY, POD_DISRUPTION_BUDGET)
"""What guards a namespace; the operator does not watch it."""


def guard(place: ProxiedInstallation, ref: KindRef) -> str:
    """Return the Organization, and its namespace, whose guard of that kind is written late."""
    return f"{place.installation.slug}-{ref.plural}"


def writes_of_guard(place: ProxiedInstallation, ref: KindRef) -> Callable[[ApiRequest], bool]:
    """Return a predicate for writes of the guards of that kind of its Organization."""
    return lambda request: (request.kind, request.namespace) == (ref.plural, guard(place, ref))


def guards(place: ProxiedInstallation) -> list[dict[str, Any]]:
    """Return the guards of those namespaces; empty = one is missing."""
    found = [guards_of(place.direct, guard(place, ref)) for ref in GUARDS]
    return found if all(each.values() and all(each.values()) for each in found) else []


@pytest.fixture
def guarded(api_cluster: Cluster, tmp_path: Path) -> Iterator[ProxiedInstallation]:
    """Make an installation with two more Organizations, guarded by an operator that is gone."""
    with proxied_installation(api_cluster, tmp_path, {"lease": SHORT_LEASE}) as place:
        names = [guard(place, ref) for ref in GUARDS]
        try:
            for name in names:
                spec = {"metadata": {"name": name}, "spec": {"namespace": name}}
                place.direct.create(of(Organization), spec)
            operator = place.operator("before")
            until_sync(lambda: guards(place), what="the guards of two namespaces")
            assert operator.stop() == 0
            yield place
        finally:
            for name in names:
                place.direct.delete(of(Organization), name)
                place.direct.delete(NAMESPACE, name)


def weaken_guards(place: ProxiedInstallation) -> None:
    """Change the guards by hand: the next leader applies them again."""
    for ref in GUARDS:
        for each in place.direct.list_objects(ref, guard(place, ref)):
            labels = {"metadata": {"labels": {MANAGED_BY_LABEL: "somebody"}}}
            name, namespace = each["metadata"]["name"], guard(place, ref)
            assert place.direct.patch(ref, name, labels, namespace).is_success


def writes(kind: str, name: str, subresource: str = "") -> Callable[[ApiRequest], bool]:
    """Return a predicate for writes of a Container's objects."""
    return lambda request: (
        (request.kind, request.subresource) == (kind, subresource) and request.name.startswith(name)
    )


def test_a_suspended_leader_undoes_nothing(
    guarded: ProxiedInstallation, image_of_life: str
) -> None:
    """Its writes are under way while it is suspended; they arrive when another one leads."""
    place = guarded
    lifecycles = ContainerLifecycles(place.installation, place.proxy, place.direct, image_of_life)
    lifecycles.prepare()
    intact = guards(place)
    processes: list[OperatorProcess] = []
    held = HeldWrites(
        lambda: processes[0].pid,
        writes("services", "route"),
        writes("containers", "state", "status"),
        writes("enclaves", "phase", "status"),
        writes("pods", "pod"),
        *(writes_of_guard(place, ref) for ref in GUARDS),
    )
    place.proxy.faults = [held]
    processes.append(place.operator("first"))
    first = processes[0]
    first.wait_until_it_leads()
    names = ("route", "state", "phase", "pod")
    for name in names:
        lifecycles.create(name)
    until_sync(held.frozen.is_set, what=f"six writes; held: {held.caught}")
    weaken_guards(place)
    second = place.operator("second")
    second.wait_until_it_leads()
    create = STEPS[0]
    await_settled(lifecycles, create, *names)
    for name in names[:3]:
        lifecycles.change(name, tag="v2")
        until_sync(partial(lifecycles.serves, name, "v2"), what=f"v2 of {name}")
    before = await_settled(lifecycles, create, *names)
    until_sync(lambda: guards(place) == intact, what="the guards applied again")
    audited = len(place.proxy.writes)
    held.release()
    first.send(signal.SIGCONT)
    assert first.wait() == 3
    assert await_settled(lifecycles, create, *names) == before
    assert guards(place) == intact
    late = [each for each in place.proxy.writes[audited:] if each.request.client == "first"]
    assert {each.request.number for each in late} >= {each.number for each in held.caught}
    assert [each.request.text for each in late if each.status < 400] == []
