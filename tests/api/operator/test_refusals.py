"""Requests that cannot be carried out: Stalled with a message, and no child is made."""

import pytest

from cloister_crds.kinds.container import ContainerPhase
from tests.support.operator import Installation, condition_of, file_text

IMAGE = "registry.invalid/web@sha256:" + "ab" * 32


@pytest.fixture
def operated(installation: Installation) -> Installation:
    repository = installation.repository("acme/web")
    repository.release("v1", file_text(IMAGE))
    repository.release("no-digest", file_text("registry.invalid/web:latest"))
    repository.release("broken", b"containers: [\n")
    repository.release("wrong", file_text(IMAGE).replace(b"cpus: 2", b"cpus: 3"))
    repository.tag("empty", repository.commit({"README": b"nothing"}))
    installation.operator().wait_until_it_leads()
    return installation


def refused(installation: Installation, name: str) -> tuple[str, str]:
    container = installation.wait_for(name, "Stalled", within=60)
    assert container.status.phase is ContainerPhase.FAILED
    ready = condition_of(container, "Ready")
    assert ready is not None
    assert ready["status"] == "False"
    assert container.status.message == ready["message"]
    assert installation.objects("enclaves.cloister.dev,pods,services") == []
    assert installation.objects("deployments.cloister.dev") == []
    return ready["reason"], ready["message"]


@pytest.mark.parametrize(
    ("spec", "reason", "said"),
    [
        ({"repo": "acme/web", "tag": "v9"}, "TagNotFound", "v9"),
        ({"repo": "acme/none", "tag": "v1"}, "RepositoryNotFound", "acme/none"),
        ({"repo": "acme/web", "tag": "empty"}, "ConfigFileNotFound", "service-config.yml"),
        ({"repo": "acme/web", "tag": "broken"}, "InvalidConfig", "line 1"),
        ({"repo": "acme/web", "tag": "wrong"}, "InvalidConfig", "cpus"),
        ({"repo": "acme/web", "tag": "no-digest"}, "InvalidConfig", "containers[0].image"),
        ({"repo": "acme/web", "tag": "v1", "host": "nowhere"}, "HostNotFound", "nowhere"),
        ({"repo": "acme/web", "tag": "v1", "commit": "0" * 40}, "TagMoved", "v1"),
        ({"repo": "acme/web", "tag": "v1", "gpus": 1}, "NotSupportedYet", "spec.gpus"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refused_with_a_message_that_says_where(
    operated: Installation, spec: dict[str, object], reason: str, said: str
) -> None:
    operated.create_container("web", **spec)
    found, message = refused(operated, "web")
    assert found == reason
    assert said in message


def test_a_registry_that_cannot_be_reached_is_asked_again(operated: Installation) -> None:
    operated.create_container("web", repo="acme/web", tag="v1")
    container = operated.wait_for("web", "Reconciling", reason="RegistryUnavailable", within=60)
    assert container.status.phase is ContainerPhase.PENDING
    assert "registry.invalid" in container.status.message
    assert operated.objects("enclaves.cloister.dev,pods,services") == []


def test_a_corrected_spec_goes_on(operated: Installation) -> None:
    operated.create_container("web", repo="acme/web", tag="v9")
    refused(operated, "web")
    operated.create_container("web", repo="acme/web", tag="v1")
    operated.wait_for("web", "Reconciling", reason="RegistryUnavailable", within=60)


def test_without_an_organization_nothing_is_made(operated: Installation) -> None:
    name = operated.namespace
    operated.kubectl("label", "namespace", name, "cloister.dev/organization-", "--overwrite")
    operated.create_container("web", repo="acme/web", tag="v1")
    found, _ = refused(operated, "web")
    assert found == "OrganizationNotFound"
