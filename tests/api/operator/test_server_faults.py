"""The API server slow, refusing, losing, forgetting and behind: in the end nothing is different.

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
"""Kinds of what the operator makes for a Container alone."""


def disturbances() -> dict[str, Sequence[Fault]]:
    """Answer what goes wrong at once, by the name of the Container that goes through it."""
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


def test_what_was_between_may_be_missed(
    behind_proxy: ProxiedInstallation, lifecycles: ContainerLifecycles
) -> None:
    """Watches stand still while a user changes his mind; only the last state is seen."""
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
    """Tell the writes of network policies."""
    return request.kind == "networkpolicies"


def test_no_pod_comes_before_its_fence(
    behind_proxy: ProxiedInstallation, lifecycles: ContainerLifecycles
) -> None:
    """The passes over the Organization and over the Enclave wait at the fence, whoever is first."""
    create = STEPS[0]
    held = HeldWrites(None, guards_a_namespace, guards_a_namespace)
    lifecycles.proxy.faults = [held]
    behind_proxy.operator("only").wait_until_it_leads()
    create.do(lifecycles, "fenced")
    until_sync(lambda: len(held.caught) > 1, what="two that want the fence")
    assert not lifecycles.direct.listed(POD, lifecycles.namespace)
    held.release()
    await_settled(lifecycles, create, "fenced")


def is_about_children(request: ApiRequest) -> bool:
    """Tell the watches of what the operator makes from those of what users write."""
    return request.kind in {ref.plural for ref in (*CHILDREN, CLAIM)}


def take_away(lifecycles: ContainerLifecycles, name: str, *kinds: KindRef) -> int:
    """Delete what the operator made for a Container, as an administrator may; count it."""
    mine = [
        (ref, each["metadata"]["name"], each["metadata"].get("namespace"))
        for ref in kinds
        for each in lifecycles.direct.listed(ref, None if ref == CLAIM else lifecycles.namespace)
        if each["metadata"]["name"].startswith(name)
    ]
    for ref, known, namespace in mine:
        lifecycles.direct.delete(ref, known, namespace)
    return len(mine)


def test_children_that_come_and_go_unseen(
    behind_proxy: ProxiedInstallation, lifecycles: ContainerLifecycles
) -> None:
    """The watches of children stand still: some are gone in the end, others were never seen.

    The enclaves have tokens, which are nowhere but in the Secrets that are taken away too.
    """
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
    """Tell whether an Enclave of a Container is there."""
    return bool(lifecycles.state(name)["enclaves"])


def lists_of_the_framework(request: ApiRequest) -> bool:
    """Tell the lists that fill the store from those that it is compared with."""
    return "PartialObjectMetadata" not in request.accept


def is_syncing(operator: OperatorProcess) -> bool:
    """Tell whether an operator leads and does not know the cluster yet."""
    return operator.request("/readyz") == (503, "syncing\n")


def test_a_new_leader_that_is_shown_the_past(
    succession: LeaderSuccession, lifecycles: ContainerLifecycles
) -> None:
    """It does nothing until it knows the present; where even its comparison lies, no harm is done.

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
    for concerns in (lists_of_the_framework, lambda _: True):
        stale = StaleReads(past, concerns)
        succession.renew(stale)
        until_sync(stale.has_shown, what="lists of the past")
        if concerns is lists_of_the_framework:
            leader = succession.leader
            until_sync(partial(is_syncing, leader), what="one that leads and knows nothing")
            assert not lifecycles.proxy.written(door=succession.door)
        stale.release()
        succession.leader.wait_until_it_leads()
        assert not differences(await_settled(lifecycles, stage, "web")[0], web)
        await_settled(lifecycles, delete, "gone")
