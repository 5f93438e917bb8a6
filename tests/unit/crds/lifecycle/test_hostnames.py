"""Host names of a Container."""

from cloister_crds.lifecycle.names.hostnames import (
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


def test_without_an_organization_there_are_none() -> None:
    assert wanted_hostnames(container_of(), None, DOMAIN) == ()


def test_claims_are_held_by_namespace_and_name() -> None:
    assert is_held_by(claim_of("a.b"), container_of("web", uid="another"))
    assert not is_held_by(claim_of("a.b"), container_of("web.2"))
