"""A Container at a custom domain: served while its Domain is verified, and for a time after."""

from datetime import timedelta

import pytest

from cloister_crds.kinds.container import ContainerPhase
from cloister_crds.kinds.organization import Entitlements
from cloister_crds.lifecycle.state.conditions import condition, holds
from tests.support.builders.resources import DOMAIN, SETTINGS, domain_of, organization_of
from tests.support.builders.world import SimulatedCluster

HOST = "api.customer.test"
GENERATED = f"web.acme.{DOMAIN}"


def at_a_domain() -> SimulatedCluster:
    """Make a world whose Container serves at its custom domain."""
    world = SimulatedCluster()
    world.organization = organization_of(
        entitlements=Entitlements(domain_suffixes=("customer.test",))
    )
    world.domains = (domain_of(HOST),)
    world.change_spec(custom_domain=HOST)
    world.settle()
    assert world.container.status.phase is ContainerPhase.READY
    return world


@pytest.mark.spec("21.2")
def test_it_serves_at_the_custom_and_at_the_generated_name() -> None:
    world = at_a_domain()
    (enclave,) = world.enclaves.values()
    assert enclave.spec.hostnames == (HOST, GENERATED)
    status = world.container.status
    assert (status.domain, status.internal_domain) == (HOST, GENERATED)
    assert sorted(world.claims) == [HOST, GENERATED]
    assert holds(status.conditions, "DomainReady")


def test_a_lost_domain_goes_on_and_blocks_what_is_new() -> None:
    world = at_a_domain()
    world.domains = (domain_of(HOST, verified=False, lost_at=world.now),)
    world.settle()
    status = world.container.status
    ready = condition(status.conditions, "DomainReady")
    assert ready is not None
    assert (ready.reason, holds(status.conditions, "DomainReady")) == ("DomainLost", False)
    assert (status.domain, status.phase) == (HOST, ContainerPhase.READY)
    assert HOST in world.claims
    served = status.active_enclave
    world.change_spec(tag="v1.1.0")
    world.settle()
    status = world.container.status
    assert status.active_enclave == served
    assert world.reason("Ready") == "DomainNotVerified"


@pytest.mark.spec("24.10")
def test_it_is_dropped_after_the_grace_and_comes_back() -> None:
    world = at_a_domain()
    lost = world.now
    world.domains = (domain_of(HOST, verified=False, lost_at=lost),)
    world.now = lost + SETTINGS.domain_grace + timedelta(seconds=1)
    world.settle()
    status = world.container.status
    assert (status.domain, status.phase) == (GENERATED, ContainerPhase.READY)
    assert list(world.claims) == [GENERATED]
    world.domains = (domain_of(HOST),)
    world.settle()
    assert world.container.status.domain == HOST
    assert sorted(world.claims) == [HOST, GENERATED]


def test_leaving_the_domain_out_reverts_to_the_generated_name() -> None:
    world = at_a_domain()
    world.change_spec(custom_domain=None)
    world.settle()
    status = world.container.status
    assert (status.domain, status.internal_domain) == (GENERATED, GENERATED)
    (enclave,) = world.enclaves.values()
    assert enclave.spec.hostnames == (GENERATED,)
    assert list(world.claims) == [GENERATED]
    assert condition(status.conditions, "DomainReady") is None


def test_a_domain_that_vanished_is_told() -> None:
    world = at_a_domain()
    world.domains = ()
    world.settle()
    ready = condition(world.container.status.conditions, "DomainReady")
    assert ready is not None
    assert ready.reason == "DomainNotFound"
