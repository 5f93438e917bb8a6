"""Host names of a Container."""

import pytest

from cloister_crds.lifecycle.names.hostnames import (
    container_named_in,
    generated_hostnames,
    is_held_by,
    wanted_hostnames,
)
from tests.support.builders.resources import DOMAIN, claim_of, container_of, organization_of

ORGANIZATION = organization_of()


def test_the_public_name_comes_first() -> None:
    container = container_of(custom_domain="api.example.test")
    assert wanted_hostnames(container, ORGANIZATION, DOMAIN) == (
        "api.example.test",
        f"web.acme.{DOMAIN}",
    )


def test_the_display_name_stands_in_the_host_name() -> None:
    container = container_of("web.2")
    named = container.model_copy(
        update={"spec": container.spec.model_copy(update={"name": "web", "debug": True})}
    )
    assert wanted_hostnames(named, ORGANIZATION, DOMAIN) == (f"web.debug.acme.{DOMAIN}",)


@pytest.mark.spec("4.2")
def test_a_container_keeps_the_host_name_that_its_status_has() -> None:
    earlier = f"web-production--ntbbpln36c.acme.{DOMAIN}"
    fresh = container_of("web--production")
    served = fresh.model_copy(
        update={"status": fresh.status.model_copy(update={"internal_domain": earlier})}
    )
    assert wanted_hostnames(fresh, ORGANIZATION, DOMAIN) == (f"web--production.acme.{DOMAIN}",)
    assert wanted_hostnames(served, ORGANIZATION, DOMAIN) == (earlier,)
    kept = generated_hostnames(served, ORGANIZATION, DOMAIN, debug=False)
    assert kept.preview == f"web-production--ntbbpln36c.preview.acme.{DOMAIN}"
    # What it was never called has the form of today.
    debug = generated_hostnames(served, ORGANIZATION, DOMAIN, debug=True)
    assert debug.internal == f"web--production.debug.acme.{DOMAIN}"


def test_without_an_organization_there_are_none() -> None:
    assert wanted_hostnames(container_of(), None, DOMAIN) == ()


@pytest.mark.parametrize(
    ("hostname", "found"),
    [
        (f"web.acme.{DOMAIN}", ("web", "web", False)),
        (f"web.debug.acme.{DOMAIN}", ("web.debug", "web", True)),
        (f"debug.acme.{DOMAIN}", ("debug", "debug", False)),
        (f"web.preview.acme.{DOMAIN}", None),
        (f"web.preview.debug.acme.{DOMAIN}", None),
        (f"web.other.{DOMAIN}", None),
        (f"web.acme.{DOMAIN}.example", None),
        (f".acme.{DOMAIN}", None),
        (f"acme.{DOMAIN}", None),
        ("api.example.test", None),
    ],
)
def test_a_generated_host_name_spells_out_one_container(
    hostname: str, found: tuple[str, str, bool] | None
) -> None:
    named = container_named_in(hostname, organization="acme", containers_domain=DOMAIN)
    assert (named and (named.object_name, named.name, named.debug)) == found


def test_only_the_container_that_is_spelled_out_has_the_name_without_a_claim() -> None:
    named = container_named_in(f"web.acme.{DOMAIN}", organization="acme", containers_domain=DOMAIN)
    assert named is not None
    web = container_of("web")
    assert named.is_it(web)
    for changed in ({"name": "other"}, {"debug": True}):
        spec = web.spec.model_copy(update=changed)
        assert not named.is_it(web.model_copy(update={"spec": spec}))
    second = container_of("web.2")
    spec = second.spec.model_copy(update={"name": "web"})
    assert not named.is_it(second.model_copy(update={"spec": spec}))


def test_claims_are_held_by_namespace_and_name() -> None:
    assert is_held_by(claim_of("a.b"), container_of("web", uid="another"))
    assert not is_held_by(claim_of("a.b"), container_of("web.2"))
