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
from tests.support.faults.crashing_operators import Disturbed, Succession
from tests.support.faults.fault_kinds import (
    Ask,
    Fault,
    Held,
    HeldWrites,
    Loss,
    Slow,
    Stale,
    Unreliable,
    WatchesGone,
)
from tests.support.lifecycles.end_states import CHILDREN, as_wished, differences
from tests.support.lifecycles.steps import STEPS, Life, settled
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
        "under-delay": [WatchesGone(4), Slow(0.15)],
    }


def test_a_server_that_fails_only_delays(behind_proxy: Disturbed, life: Life) -> None:
    behind_proxy.operator("only").wait_until_it_leads()
    faults = disturbances()
    for step in STEPS[:3]:
        step.do(life, "calm")
        (expected,) = settled(life, step, "calm")
        for name, wrong in faults.items():
            life.proxy.faults = wrong
            step.do(life, name)
            until_sync(partial(life.reached, step, name), within=PATIENCE, what=name)
            life.proxy.faults = []
            (found,) = settled(life, step, name, within=PATIENCE)
            assert not differences(found, expected), f"{step.name} with {name}"
    (errors,), (losses,), (gone, _) = faults.values()
    assert isinstance(errors, Unreliable)
    assert isinstance(losses, Unreliable)
    assert isinstance(gone, WatchesGone)
    assert min(errors.hits, losses.hits, gone.ended) > 2, "hardly anything went wrong"


def test_what_was_between_may_be_missed(behind_proxy: Disturbed, life: Life) -> None:
    """Watches stand still while a user changes his mind; only the last state is seen."""
    behind_proxy.operator("only").wait_until_it_leads()
    create, delete = STEPS[0], STEPS[-1]
    for name in ("fickle-one", "made-again"):
        create.do(life, name)
    settled(life, create, "fickle-one", "made-again")
    held = Held(newest=True)
    life.proxy.faults = [held]
    for spec in ({"tag": "v2"}, {"state": "Stopped"}, {"tag": "v1"}, {"state": "Running"}):
        life.change("fickle-one", **spec)
    life.change("fickle-one", tag="v2", variables=[{"name": "GREETING", "value": "bye"}])
    delete.do(life, "made-again")
    life.create_again("made-again", tag="v2")
    held.release()
    for name in ("fickle-one", "made-again"):
        until_sync(partial(life.serves, name, "v2"), within=PATIENCE, what=f"v2 of {name}")
    found = settled(life, create, "fickle-one", "made-again")
    assert held.dropped > 0
    life.create("fresh-one")
    life.change("fresh-one", tag="v2")
    until_sync(lambda: life.serves("fresh-one", "v2"), within=PATIENCE, what="v2 of fresh")
    (again,) = settled(life, create, "fresh-one")
    assert not differences(as_wished(found[1]), as_wished(again))
    life.change("fresh-one", variables=[{"name": "GREETING", "value": "bye"}])
    (bye,) = settled(life, create, "fresh-one")
    assert not differences(as_wished(found[0]), as_wished(bye))


def guards_a_namespace(ask: Ask) -> bool:
    """Tell the writes of network policies."""
    return ask.kind == "networkpolicies"


def test_no_pod_comes_before_its_fence(behind_proxy: Disturbed, life: Life) -> None:
    """The passes over the Organization and over the Enclave wait at the fence, whoever is first."""
    create = STEPS[0]
    held = HeldWrites(None, guards_a_namespace, guards_a_namespace)
    life.proxy.faults = [held]
    behind_proxy.operator("only").wait_until_it_leads()
    create.do(life, "fenced")
    until_sync(lambda: len(held.caught) > 1, what="two that want the fence")
    assert not life.direct.listed(POD, life.namespace)
    held.release()
    settled(life, create, "fenced")


def is_about_children(ask: Ask) -> bool:
    """Tell the watches of what the operator makes from those of what users write."""
    return ask.kind in {ref.plural for ref in (*CHILDREN, CLAIM)}


def take_away(life: Life, name: str, *kinds: KindRef) -> int:
    """Delete what the operator made for a Container, as an administrator may; count it."""
    mine = [
        (ref, each["metadata"]["name"], each["metadata"].get("namespace"))
        for ref in kinds
        for each in life.direct.listed(ref, None if ref == CLAIM else life.namespace)
        if each["metadata"]["name"].startswith(name)
    ]
    for ref, known, namespace in mine:
        life.direct.delete(ref, known, namespace)
    return len(mine)


def test_children_that_come_and_go_unseen(behind_proxy: Disturbed, life: Life) -> None:
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
        create.do(life, name)
    settled(life, create, *poor)
    held = Held(is_about_children, newest=True)
    life.proxy.faults = [held]
    for name, kinds in poor.items():
        assert take_away(life, name, *kinds) >= len(set(kinds))
    for name in fresh:
        create.do(life, name)
        until_sync(partial(has_enclave, life, name), what=f"an Enclave of {name}")
    assert take_away(life, "unseen", *MADE) > 0
    held.release()
    for name in (*poor, *fresh):
        what = f"what serves of {name}"
        until_sync(partial(life.serves, name, "v1"), within=PATIENCE, what=what)
    found = settled(life, create, *poor, *fresh, within=PATIENCE)
    assert held.dropped > 0
    for name, state in zip((*poor, *fresh), found, strict=True):
        assert not differences(as_wished(state), as_wished(found[-1])), name


def has_enclave(life: Life, name: str) -> bool:
    """Tell whether an Enclave of a Container is there."""
    return bool(life.state(name)["enclaves"])


def lists_of_the_framework(ask: Ask) -> bool:
    """Tell the lists that fill the store from those that it is compared with."""
    return "PartialObjectMetadata" not in ask.accept


def is_syncing(operator: OperatorProcess) -> bool:
    """Tell whether an operator leads and does not know the cluster yet."""
    return operator.ask("/readyz") == (503, "syncing\n")


def test_a_new_leader_that_is_shown_the_past(succession: Succession, life: Life) -> None:
    """It does nothing until it knows the present; where even its comparison lies, no harm is done.

    In the past a Container that is gone was just created, and another one's update had just begun.
    """
    create, stage, delete = STEPS[0], STEPS[1], STEPS[-1]
    create.do(life, "web")
    settled(life, create, "web")
    stage.do(life, "web")
    create.do(life, "gone")
    past = life.direct.version(of(Container))
    (web,) = settled(life, stage, "web")
    settled(life, create, "gone")
    delete.do(life, "gone")
    settled(life, delete, "gone")
    for concerns in (lists_of_the_framework, lambda _: True):
        stale = Stale(past, concerns)
        succession.renew(stale)
        until_sync(stale.has_shown, what="lists of the past")
        if concerns is lists_of_the_framework:
            leader = succession.leader
            until_sync(partial(is_syncing, leader), what="one that leads and knows nothing")
            assert not life.proxy.written(door=succession.door)
        stale.release()
        succession.leader.wait_until_it_leads()
        assert not differences(settled(life, stage, "web")[0], web)
        settled(life, delete, "gone")
