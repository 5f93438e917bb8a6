"""The API server slow, refusing, losing responses and stale: in the end nothing is different.

`tests.support.faults.faulty_proxy` stands between the operator and the real server.
"""

import random
from collections.abc import Sequence
from functools import partial

import pytest

from cloister_clients.kube import KindRef
from cloister_clients.kube.kinds import POD, of
from cloister_crds.kinds import Container, Deployment, HostnameClaim
from tests.support.faults.crashing_operators import LeaderSuccession, ProxiedInstallation
from tests.support.faults.fault_kinds import (
    ApiRequest,
    Delay,
    Fault,
    HeldEvents,
    HeldWrites,
    Loss,
    StaleReads,
    Unreliable,
    WatchesGone,
)
from tests.support.lifecycles.end_states import CHILDREN, desired_part, differences
from tests.support.lifecycles.steps import STEPS, ContainerLifecycles, await_settled
from tests.support.programs.operator import OperatorProcess
from tests.support.waiting import until_sync

pytestmark = pytest.mark.timeout(900)
PATIENCE = 240.0
"""Seconds for a step of a Container while the server misbehaves."""
CLAIM = of(HostnameClaim)
MADE = (*(ref for ref in CHILDREN if ref != of(Deployment)), CLAIM)
"""Kinds that the operator creates for a Container alone."""


def disturbances() -> dict[str, Sequence[Fault]]:
    """Return the faults at one time, by the name of the Container that goes through them."""
    chance = random.Random(1)
    return {
        "under-errors": [Unreliable(chance, 0.2)],
        "under-losses": [Unreliable(chance, 0.15, statuses=(), losses=(Loss.REQUEST, Loss.ANSWER))],
        "under-delay": [WatchesGone(4), Delay(0.15)],
    }


def test_a_server_that_fails_only_delays(
    behind_proxy: ProxiedInstallation, lifecycles: ContainerLifecycles
) -> None:
    behind_proxy.operator("only").wait_until_it_leads()
    faults = disturbances()
    for step in STEPS[:3]:
        step.do(lifecycles, "calm")
        (expected,) = await_settled(lifecycles, step, "calm")
        for name, wrong in faults.items():
            lifecycles.proxy.faults = wrong
            step.do(lifecycles, name)
            until_sync(partial(lifecycles.reached, step, name), within=PATIENCE, what=name)
            lifecycles.proxy.faults = []
            (found,) = await_settled(lifecycles, step, name, within=PATIENCE)
            assert not differences(found, expected), f"{step.name} with {name}"
    (errors,), (losses,), (gone, _) = faults.values()
    assert isinstance(errors, Unreliable)
    assert isinstance(losses, Unreliable)
    assert isinstance(gone, WatchesGone)
    assert min(errors.hits, losses.hits, gone.ended) > 2, "hardly anything went wrong"


def test_intermediate_states_may_be_missed(
    behind_proxy: ProxiedInstallation, lifecycles: ContainerLifecycles
) -> None:
    """Watches stall while a user changes the spec several times; only the last state is seen."""
    behind_proxy.operator("only").wait_until_it_leads()
    create, delete = STEPS[0], STEPS[-1]
    for name in ("fickle-one", "made-again"):
        create.do(lifecycles, name)
    await_settled(lifecycles, create, "fickle-one", "made-again")
    held = HeldEvents(newest=True)
    lifecycles.proxy.faults = [held]
    for spec in ({"tag": "v2"}, {"state": "Stopped"}, {"tag": "v1"}, {"state": "Running"}):
        lifecycles.change("fickle-one", **spec)
    lifecycles.change("fickle-one", tag="v2", variables=[{"name": "GREETING", "value": "bye"}])
    delete.do(lifecycles, "made-again")
    lifecycles.create_again("made-again", tag="v2")
    held.release()
    for name in ("fickle-one", "made-again"):
        until_sync(partial(lifecycles.serves, name, "v2"), within=PATIENCE, what=f"v2 of {name}")
    found = await_settled(lifecycles, create, "fickle-one", "made-again")
    assert held.dropped > 0
    lifecycles.create("fresh-one")
    lifecycles.change("fresh-one", tag="v2")
    until_sync(lambda: lifecycles.serves("fresh-one", "v2"), within=PATIENCE, what="v2 of fresh")
    (again,) = await_settled(lifecycles, create, "fresh-one")
    assert not differences(desired_part(found[1]), desired_part(again))
    lifecycles.change("fresh-one", variables=[{"name": "GREETING", "value": "bye"}])
    (bye,) = await_settled(lifecycles, create, "fresh-one")
    assert not differences(desired_part(found[0]), desired_part(bye))


def guards_a_namespace(request: ApiRequest) -> bool:
    """Return whether a request writes a network policy."""
    return request.kind == "networkpolicies"


def test_no_pod_is_created_before_its_network_policies(
    behind_proxy: ProxiedInstallation, lifecycles: ContainerLifecycles
) -> None:
    """The reconciles of the Organization and of the Enclave wait for them, whoever is first."""
    create = STEPS[0]
    held = HeldWrites(None, guards_a_namespace, guards_a_namespace)
    lifecycles.proxy.faults = [held]
    behind_proxy.operator("only").wait_until_it_leads()
    create.do(lifecycles, "guarded")
    until_sync(lambda: len(held.caught) > 1, what="two writes of the guards")
    assert not lifecycles.direct.list_objects(POD, lifecycles.namespace)
    held.release()
    await_settled(lifecycles, create, "guarded")


def is_about_children(request: ApiRequest) -> bool:
    """Return whether a request watches children that the operator creates."""
    return request.kind in {ref.plural for ref in (*CHILDREN, CLAIM)}


def take_away(lifecycles: ContainerLifecycles, name: str, *kinds: KindRef) -> int:
    """Delete children of a Container, as an administrator may; return how many."""
    mine = [
        (ref, each["metadata"]["name"], each["metadata"].get("namespace"))
        for ref in kinds
        for each in lifecycles.direct.list_objects(
            ref, None if ref == CLAIM else lifecycles.namespace
        )
        if each["metadata"]["name"].startswith(name)
    ]
    for ref, known, namespace in mine:
        lifecycles.direct.delete(ref, known, namespace)
    return len(mine)


def test_children_that_come_and_go_unseen(
    behind_proxy: ProxiedInstallation, lifecycles: ContainerLifecycles
) -> None:
    """The watches of children stall: some are gone in the end, others were never seen."""
    address = {"apiAddress": "http://192.0.2.1", "signedCertificates": True}
    behind_proxy.installation.settings |= address
    behind_proxy.operator("only").wait_until_it_leads()
    create = STEPS[0]
    poor = {f"no-{ref.plural}": (ref, POD) for ref in MADE} | {"robbed": MADE}
    fresh = ("unseen", "untouched")
    for name in poor:
        create.do(lifecycles, name)
    await_settled(lifecycles, create, *poor)
    held = HeldEvents(is_about_children, newest=True)
    lifecycles.proxy.faults = [held]
    for name, kinds in poor.items():
        assert take_away(lifecycles, name, *kinds) >= len(set(kinds))
    for name in fresh:
        create.do(lifecycles, name)
        until_sync(partial(has_enclave, lifecycles, name), what=f"an Enclave of {name}")
    assert take_away(lifecycles, "unseen", *MADE) > 0
    held.release()
    for name in (*poor, *fresh):
        what = f"what serves of {name}"
        until_sync(partial(lifecycles.serves, name, "v1"), within=PATIENCE, what=what)
    found = await_settled(lifecycles, create, *poor, *fresh, within=PATIENCE)
    assert held.dropped > 0
    for name, state in zip((*poor, *fresh), found, strict=True):
        assert not differences(desired_part(state), desired_part(found[-1])), name


def has_enclave(lifecycles: ContainerLifecycles, name: str) -> bool:
    """Return whether a Container has an Enclave."""
    return bool(lifecycles.state(name)["enclaves"])


def lists_of_kopf(request: ApiRequest) -> bool:
    """Return whether a request is a list that fills the store, not one it is compared with."""
    return "PartialObjectMetadata" not in request.accept


def is_syncing(operator: OperatorProcess) -> bool:
    """Return whether an operator leads and its informer cache has not synced yet."""
    return operator.request("/readyz") == (503, "syncing\n")


def test_a_new_leader_that_is_served_a_stale_cache(
    succession: LeaderSuccession, lifecycles: ContainerLifecycles
) -> None:
    """It does nothing before it has synced; where even its comparison is stale, no harm is done.

    In the past a Container that is gone was just created, and another one's update had just begun.
    """
    create, stage, delete = STEPS[0], STEPS[1], STEPS[-1]
    create.do(lifecycles, "web")
    await_settled(lifecycles, create, "web")
    stage.do(lifecycles, "web")
    create.do(lifecycles, "gone")
    past = lifecycles.direct.version(of(Container))
    (web,) = await_settled(lifecycles, stage, "web")
    await_settled(lifecycles, create, "gone")
    delete.do(lifecycles, "gone")
    await_settled(lifecycles, delete, "gone")
    for concerns in (lists_of_kopf, lambda _: True):
        stale = StaleReads(past, concerns)
        succession.replace_both(stale)
        until_sync(stale.has_shown, what="lists of the past")
        if concerns is lists_of_kopf:
            leader = succession.leader
            until_sync(partial(is_syncing, leader), what="one that leads and knows nothing")
            assert not lifecycles.proxy.written(client=succession.leader_name)
        stale.release()
        succession.leader.wait_until_it_leads()
        assert not differences(await_settled(lifecycles, stage, "web")[0], web)
        await_settled(lifecycles, delete, "gone")
