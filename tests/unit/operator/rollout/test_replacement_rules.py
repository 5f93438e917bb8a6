"""A replacement (spec.replaces): host names transfer, then the old Container gives way."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cloister_crds.kinds.container import Container, ContainerPhase, ContainerStatus, HistoryEntry
from cloister_crds.kinds.meta import PAUSED_ANNOTATION
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, holds, merge
from cloister_crds.lifecycle.state.observed import Gateway, RouteState
from cloister_operator.rollout.decision import ClaimHostname, ReleaseHostname, TransferHostname
from tests.support.builders.resources import DOMAIN, NOW, SETTINGS, claim_of, container_of
from tests.support.builders.world import SimulatedCluster

HOSTNAME = f"web.acme.{DOMAIN}"
SERVES = ContainerStatus(phase=ContainerPhase.READY, active_enclave="new-a-1")
SERVED = ContainerStatus(
    phase=ContainerPhase.STOPPED,
    history=(HistoryEntry(enclave="e", tag="v1", commit="c" * 40, outcome="Served", at=NOW),),
)


def born(name: str, minutes: int, **fields: Any) -> Container:
    """Build a Container that was created so many minutes from now."""
    made = container_of(name, uid=f"uid-{name}-{minutes}", **fields)
    created = NOW + timedelta(minutes=minutes)
    metadata = made.metadata.model_copy(update={"creation_timestamp": created})
    return made.model_copy(update={"metadata": metadata})


@pytest.fixture
def heir() -> SimulatedCluster:
    """Return the world of a Container that replaces one of the same name."""
    world = SimulatedCluster()
    world.container = container_of("web.2", replaces="web", status=ContainerStatus())
    world.inherits_hostnames = True
    world.claims = {HOSTNAME: claim_of(HOSTNAME, holder="web")}
    return world


def start_up(world: SimulatedCluster) -> None:
    """Bring the only Enclave up, up to the moment in which it is ready."""
    while not world.pods:
        world.step()
    (name,) = world.pods
    world.start(name)
    world.step()
    world.set_health(name)


@pytest.mark.lifecycle("replaces")
def test_names_pass_over_when_the_successor_is_ready_and_reached(heir: SimulatedCluster) -> None:
    start_up(heir)
    assert heir.claims[HOSTNAME].spec.holder.name == "web", "the old one still serves"
    for _ in range(6):
        heir.step()
    assert heir.claims[HOSTNAME].spec.holder.name == "web.2"
    assert heir.reason() == "Serving"
    rules = [each.rule for each in heir.decisions]
    passed = rules.index("hostnames_transfer_to_the_ready_replacement")
    assert rules.count("hostnames_transfer_to_the_ready_replacement") == 1
    assert heir.decisions[passed].status.active_enclave == "", "it serves when it has the names"
    assert heir.decisions[passed].status.phase is ContainerPhase.STARTED
    actions = [action for each in heir.decisions for action in each.actions]
    assert [
        type(each) for each in actions if isinstance(each, TransferHostname | ClaimHostname)
    ] == [TransferHostname]


def test_a_name_that_was_given_back_meanwhile_is_claimed(heir: SimulatedCluster) -> None:
    start_up(heir)
    heir.claims.clear()
    for _ in range(6):
        heir.step()
    assert heir.claims[HOSTNAME].spec.holder.name == "web.2"
    assert heir.reason() == "Serving"


def test_a_name_that_another_one_got_meanwhile_stalls(heir: SimulatedCluster) -> None:
    start_up(heir)
    heir.claims[HOSTNAME] = claim_of(HOSTNAME, holder="thief")
    for _ in range(4):
        heir.step()
    assert heir.reason("Stalled") == "HostnameTaken"
    assert len(heir.enclaves) == 1, "what is ready waits for the name"
    heir.claims[HOSTNAME] = claim_of(HOSTNAME, holder="web")
    for _ in range(4):
        heir.step()
    assert heir.reason() == "Serving"


def test_a_name_of_somebody_else_is_taken(heir: SimulatedCluster) -> None:
    heir.inherits_hostnames = False
    heir.step()
    for _ in range(4):
        heir.step()
    assert heir.reason("Stalled") == "HostnameTaken"
    assert not heir.enclaves


@pytest.fixture
def old() -> SimulatedCluster:
    """Return the world of a Container that serves and is to be replaced."""
    world = SimulatedCluster()
    world.settle()
    world.successor = container_of("web.2", uid="heir", replaces="web")
    return world


@pytest.mark.spec("21.19")
def test_it_serves_until_its_successor_has_taken_over(old: SimulatedCluster) -> None:
    before = old.container.status.model_copy(update={"replaced_by": "web.2"})
    old.settle()
    assert old.container.status == before
    assert old.successor is not None
    failed = ContainerStatus(phase=ContainerPhase.FAILED)
    old.successor = old.successor.model_copy(update={"status": failed})
    old.settle()
    assert old.container.status == before


@pytest.mark.lifecycle("replaces")
@pytest.mark.parametrize("status", [SERVES, SERVED], ids=["serves", "has served"])
def test_it_ends_and_waits_to_be_deleted(old: SimulatedCluster, status: ContainerStatus) -> None:
    assert old.successor is not None
    old.successor = old.successor.model_copy(update={"status": status})
    old.claims = {HOSTNAME: claim_of(HOSTNAME, holder="web.2")}
    old.reconcile()
    assert (old.container.status.phase, old.reason()) == (ContainerPhase.STOPPING, "Replaced")
    old.settle()
    assert (old.container.status.phase, old.reason("Stalled")) == (
        ContainerPhase.STOPPED,
        "Replaced",
    )
    assert "Container web.2 has taken over" in old.container.status.message
    assert not old.enclaves
    assert not old.pods
    actions = [action for each in old.decisions for action in each.actions]
    assert not [each for each in actions if isinstance(each, ReleaseHostname)], "it passed over"


def test_host_names_that_its_successor_does_not_want_are_given_back(old: SimulatedCluster) -> None:
    assert old.successor is not None
    old.successor = old.successor.model_copy(update={"status": SERVES})
    old.settle()
    assert old.claims == {}


def test_it_stays_replaced_while_the_successor_is_there(old: SimulatedCluster) -> None:
    assert old.successor is not None
    old.successor = old.successor.model_copy(update={"status": SERVES})
    old.settle()
    old.successor = old.successor.model_copy(update={"status": ContainerStatus()})
    old.settle()
    assert old.reason("Stalled") == "Replaced"
    old.successor = None
    old.settle()
    assert old.reason() == "Serving"
    assert not holds(old.container.status.conditions, "Stalled")


def test_an_update_that_was_on_its_way_ends_with_it(old: SimulatedCluster) -> None:
    assert old.successor is not None
    old.change_spec(tag="v1.1.0")
    while not old.container.status.candidate:
        old.step()
    old.successor = old.successor.model_copy(update={"status": SERVES})
    old.settle()
    assert old.container.status.update is None
    assert not old.enclaves


def test_it_gives_way_slowly_and_leaves_its_route_to_the_successor() -> None:
    gateway = Gateway("tls", "gateways")
    drain = timedelta(seconds=30)
    world = SimulatedCluster(replace(SETTINGS, drain=drain, gateway=gateway))
    for _ in range(12):
        world.settle()
        world.report_routes(RouteState.ACCEPTED)
    assert list(world.routes) == [HOSTNAME]
    available = ConditionUpdate("Available", status=True, reason="Serving")
    status = SERVES.model_copy(
        update={"conditions": merge((), [available], generation=1, now=world.now)}
    )
    world.successor = container_of("web.2", uid="heir", replaces="web", status=status)
    world.claims = {HOSTNAME: claim_of(HOSTNAME, holder="web.2")}
    since = world.now
    decision = world.reconcile()
    assert decision.requeue_after == drain
    assert (world.container.status.phase, world.reason()) == (ContainerPhase.STOPPING, "Replaced")
    assert len(world.enclaves) == 1
    world.settle()
    assert world.now >= since + drain
    assert not world.enclaves
    assert list(world.routes) == [HOSTNAME], "the successor makes it its own"


def test_pause_does_not_hold_the_end_of_what_was_replaced() -> None:
    world = SimulatedCluster()
    world.settle()
    metadata = world.container.metadata.model_copy(
        update={"annotations": {PAUSED_ANNOTATION: "true"}}
    )
    world.container = world.container.model_copy(update={"metadata": metadata})
    world.successor = born("new", 1, replaces="web", status=SERVES)
    world.settle()
    assert (world.enclaves, world.reason()) == ({}, "Replaced")
