"""The pages of docs/gitops, as tests with the real tools copy them."""

import pytest

from cloister_crds.kinds import Container
from tests.support.gitops.pages import Page

PAGES = ("argocd", "flux")


@pytest.mark.parametrize("name", PAGES)
def test_the_container_of_a_page_is_one(name: str) -> None:
    body = Page(name).manifests()["Container", "web"]
    assert body["apiVersion"] == Container.INFO.api_version
    container = Container.read(body)
    assert (container.spec.repo, container.spec.tag) == ("acme/web", "v1.0.0")


@pytest.mark.parametrize("name", PAGES)
def test_every_command_of_a_page_is_of_kubectl(name: str) -> None:
    commands = Page(name).commands()
    assert commands
    assert {command[0] for command in commands} == {"kubectl"}


def test_a_reader_has_own_addresses() -> None:
    page = Page("flux", {"https://git.example.com": "http://127.0.0.1:1"})
    source = page.manifests()["GitRepository", "acme"]
    assert source["spec"]["url"] == "http://127.0.0.1:1/acme/deploy.git"
    with pytest.raises(AssertionError, match=r"flux\.md does not name https://elsewhere"):
        Page("flux", {"https://elsewhere": ""}).manifests()
