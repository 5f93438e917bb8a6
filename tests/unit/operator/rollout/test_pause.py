"""A pause holds starts, updates and stops, and nothing that others wait for."""

from dataclasses import replace
from datetime import timedelta

from cloister_crds.kinds.meta import PAUSED_ANNOTATION
from cloister_crds.kinds.organization import Entitlements
from cloister_crds.lifecycle.state.observed import Gateway
from tests.support.builders.resources import SETTINGS, domain_of, organization_of
from tests.support.builders.world import SimulatedCluster

HOST = "api.customer.test"


def pause(world: SimulatedCluster, value: str = "true") -> None:
    """Set the annotation on the Container."""
    metadata = world.container.metadata.model_copy(
        update={"annotations": {PAUSED_ANNOTATION: value}}
    )
    world.container = world.container.model_copy(update={"metadata": metadata})


def test_what_serves_leaves_a_drained_node_as_the_release_that_serves(
    serving: SimulatedCluster,
) -> None:
    old = serving.container.status.active_enclave
    pause(serving)
    serving.change_spec(tag="v2")
    serving.cordon("node-1")
    serving.settle()
    active = serving.container.status.active_enclave
    assert active != old
    assert list(serving.enclaves) == [active]
    assert serving.pods[active].node == "node-2"
    assert serving.enclaves[active].spec.tag == serving.container.status.current_tag != "v2"
    assert serving.service is not None
    assert serving.service.selects == active


def test_an_update_waits_for_the_end_of_the_pause(serving: SimulatedCluster) -> None:
    old = serving.container.status.active_enclave
    pause(serving)
    serving.change_spec(tag="v1.1.0")
    for _ in range(4):
        assert not serving.reconcile().actions
    assert list(serving.enclaves) == [old]
    pause(serving, "false")
    serving.settle()
    assert serving.container.status.active_enclave != old


def test_a_host_name_that_was_lost_is_given_up() -> None:
    world = SimulatedCluster(replace(SETTINGS, gateway=Gateway("public", "cloister-system", "tls")))
    entitlements = Entitlements(domain_suffixes=("customer.test",))
    world.organization = organization_of(entitlements=entitlements)
    world.domains = (domain_of(HOST),)
    world.change_spec(custom_domain=HOST)
    world.settle()
    assert HOST in world.claims
    assert HOST in world.routes
    pause(world)
    world.domains = (domain_of(HOST, verified=False, lost_at=world.now),)
    world.reconcile()
    assert HOST in world.claims, "until the grace period is over"
    world.advance(SETTINGS.domain_grace / timedelta(seconds=1) + 1)
    for _ in range(3):
        world.reconcile()
    assert HOST not in world.claims
    assert HOST not in world.routes
    assert len(world.claims) == 1, "the generated name stays"
