"""Containers on a real node serve over TLS, are updated, stopped, started and recover."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cloister_crds.kinds.container import ContainerPhase
from dev.cluster import Cluster
from tests.support.programs.operator import (
    CONTAINERS_DOMAIN,
    Installation,
    condition_of,
    operator_lock,
)
from tests.support.programs.web_service import PageServices, page_file
from tests.support.waiting import until_sync

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def pages(cluster: Cluster) -> PageServices:
    return PageServices(cluster)


@pytest.fixture(scope="module")
def installation(
    cluster: Cluster, pages: PageServices, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("installation")
    with operator_lock(cluster.name):
        # A node that follows the EndpointSlice three seconds late still loses no request.
        settings = pages.settings | {"claimAgeSeconds": 1, "drainSeconds": 4}
        installed = Installation(cluster, folder, settings)
        try:
            installed.prepare()
            installed.create_organization()
            repository = installed.repository("acme/web")
            for tag, text in (("v1.0.0", "one"), ("v1.1.0", "two")):
                repository.release(tag, page_file(pages.web, text))
            repository.release("v2.0.0", page_file(pages.web, "bad", command=["false"]))
            installed.operator().wait_until_it_leads()
            yield installed
        finally:
            installed.end()


def text_of(pages: PageServices, installation: Installation, name: str) -> str:
    page = pages.fetch_page(installation, name)
    return page.body.strip() if page is not None and page.status == 200 else ""


@pytest.mark.lifecycle("admitted", "deploying-ready", "first-ready")
def test_a_container_serves_over_tls(installation: Installation, pages: PageServices) -> None:
    installation.create_container("plain", repo="acme/web", tag="v1.0.0")
    container = installation.wait_for("plain", "Ready")
    assert container.status.phase is ContainerPhase.READY
    page = pages.await_page(installation, "plain")
    assert (page.status, page.body) == (200, "one\n")
    assert page.certificate_names == (container.status.domain,)
    other = pages.fetch_page(installation, "plain", "/not-listed")
    assert other is not None
    assert other.status == 404
    assert json.loads(other.body)["error"]["message"] == "Not found."


@pytest.mark.spec("47.1")
def test_the_pod_is_unprivileged(installation: Installation) -> None:
    installation.create_container("plain", repo="acme/web", tag="v1.0.0")
    name = installation.wait_for("plain", "Ready").status.active_enclave
    inside = ("exec", "-n", installation.namespace, name, "-c", "web", "--")
    status = installation.kubectl(*inside, "cat", "/proc/1/status")
    facts = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert int(facts["CapEff"], 16) == 0
    assert facts["NoNewPrivs"] == "1"
    assert facts["Seccomp"] == "2"
    published = ["attestation.json", "config.yml", "container-status.json", "mpk", "secrets"]

    def all_published() -> bool:
        return installation.kubectl(*inside, "ls", "/cloister").split() == published

    until_sync(all_published, what="the attestation document, which needs the shim's key")
    mounts = installation.kubectl(*inside, "cat", "/proc/mounts")
    options = {line.split()[1]: line.split()[3].split(",") for line in mounts.splitlines()}
    assert "ro" in options["/"]
    assert "ro" in options["/cloister"]
    assert "/var/run/secrets/kubernetes.io/serviceaccount" not in options


@pytest.mark.spec("5.6")
@pytest.mark.lifecycle("blue-green", "desired", "promotes-itself", "takeover")
def test_an_update_is_blue_green(installation: Installation, pages: PageServices) -> None:
    installation.create_container("green", repo="acme/web", tag="v1.0.0")
    first = installation.wait_for("green", "Ready")
    assert pages.await_page(installation, "green").body == "one\n"
    installation.create_container("green", repo="acme/web", tag="v1.1.0")
    seen: set[str] = set()

    def switched() -> bool:
        seen.add(text_of(pages, installation, "green"))
        container = installation.container("green")
        assert container is not None
        return container.status.current_tag == "v1.1.0" and "two" in seen

    until_sync(switched, every=0.2, what="the new release")
    assert seen == {"one", "two"}, "requests were lost during the update"
    second = installation.wait_for("green", "Ready")
    assert second.status.active_enclave != first.status.active_enclave
    until_sync(
        lambda: (
            [each.metadata.name for each in installation.enclaves("green")]
            == [second.status.active_enclave]
        ),
        what="the end of the old enclave",
    )


@pytest.mark.lifecycle("spec-put-back", "update-failed")
def test_a_failed_update_keeps_the_serving_enclave(
    installation: Installation, pages: PageServices
) -> None:
    installation.create_container("kept", repo="acme/web", tag="v1.0.0")
    installation.wait_for("kept", "Ready")
    assert pages.await_page(installation, "kept").body == "one\n"
    installation.create_container("kept", repo="acme/web", tag="v2.0.0")
    container = installation.wait_for("kept", "Stalled")
    assert container.status.phase is ContainerPhase.READY
    assert container.status.update is not None
    assert "exit code 1" in container.status.update.message
    available = condition_of(container, "Available")
    assert available is not None
    assert available["status"] == "True"
    assert text_of(pages, installation, "kept") == "one"
    installation.create_container("kept", repo="acme/web", tag="v1.0.0")
    installation.wait_for("kept", "Ready", reason="Serving")


@pytest.mark.lifecycle("pod-lost")
def test_a_manually_deleted_pod_is_replaced(
    installation: Installation, pages: PageServices
) -> None:
    installation.create_container("lost", repo="acme/web", tag="v1.0.0")
    first = installation.wait_for("lost", "Ready").status.active_enclave
    installation.kubectl("delete", "pod", first, "-n", installation.namespace, "--wait=false")

    def replaced() -> bool:
        container = installation.container("lost")
        assert container is not None
        ready = condition_of(container, "Ready")
        fresh = container.status.active_enclave not in ("", first)
        return fresh and ready is not None and ready["status"] == "True"

    until_sync(replaced, every=0.3, what="another attempt that serves")
    until_sync(lambda: text_of(pages, installation, "lost") == "one", what="the page again")


@pytest.mark.lifecycle("start", "stop", "stopped")
def test_stop_and_start(installation: Installation, pages: PageServices) -> None:
    installation.create_container("switch", repo="acme/web", tag="v1.0.0")
    installation.wait_for("switch", "Ready", reason="Serving")
    installation.create_container("switch", repo="acme/web", tag="v1.0.0", state="Stopped")
    stopped = installation.wait_for("switch", "Ready", reason="Stopped")
    assert stopped.status.phase is ContainerPhase.STOPPED
    pods = [each["metadata"]["name"] for each in installation.objects("pods")]
    assert not any(name.startswith("switch-") for name in pods)
    assert text_of(pages, installation, "switch") == ""
    installation.create_container("switch", repo="acme/web", tag="v1.0.0", state="Running")
    installation.wait_for("switch", "Ready", reason="Serving")
    assert pages.await_page(installation, "switch").body == "one\n"


@pytest.mark.spec("8.1")
def test_secrets_reach_only_the_program(installation: Installation, pages: PageServices) -> None:
    script = (
        "mkdir -p /tmp/w; { echo $API_KEY; cat /cloister/secrets/tls-key; echo; echo $DOMAIN;"
        " echo $COLOUR; } > /tmp/w/index.html; exec httpd -f -p 8080 -h /tmp/w"
    )
    file = page_file(
        pages.web,
        "",
        command=["sh", "-c", script],
        secrets=["API_KEY", "tls-key"],
        env=["DOMAIN", "COLOUR"],
    )
    installation.repository("acme/secret").release("v1", file)
    installation.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "values", "namespace": installation.namespace},
            "stringData": {"api": "hidden-1", "tls": "hidden-2"},
        },
        *(
            {
                "apiVersion": "cloister.dev/v1alpha1",
                "kind": "Secret",
                "metadata": {"name": name, "namespace": installation.namespace},
                "spec": {"name": secret, "secretRef": {"name": "values", "key": key}},
            }
            for name, secret, key in (
                ("api-key", "API_KEY", "api"),
                ("tls-key", "tls-key", "tls"),
            )
        ),
    )
    installation.create_container(
        "secret",
        repo="acme/secret",
        tag="v1",
        secrets=["API_KEY", "tls-key"],
        variables=[{"name": "COLOUR", "value": "blue"}],
    )
    container = installation.wait_for("secret", "Ready")
    lines = pages.await_page(installation, "secret").body.splitlines()
    assert lines == ["hidden-1", "hidden-2", container.status.domain, "blue"]
    everything = json.dumps(
        installation.objects("containers.cloister.dev,enclaves.cloister.dev,pods,configmaps")
    )
    assert "hidden-" not in everything + installation.logs()


@pytest.mark.spec("6.10")
@pytest.mark.lifecycle("delete", "deleted")
def test_a_deleted_container_leaves_no_objects(installation: Installation) -> None:
    installation.create_container("gone", repo="acme/web", tag="v1.0.0")
    installation.wait_for("gone", "Ready")
    installation.kubectl("delete", "containers.cloister.dev", "gone", "-n", installation.namespace)

    def left() -> bool:
        kinds = "enclaves.cloister.dev,pods,services,configmaps"
        names = [each["metadata"]["name"] for each in installation.objects(kinds)]
        return any(name.startswith("gone") for name in names)

    until_sync(lambda: not left(), every=0.5, what="the end of all children")


def test_a_container_moves_to_another_containers_domain_by_a_relaunch(
    installation: Installation, pages: PageServices
) -> None:
    """As docs/operations/upgrade.md has it: until then it serves its old name only."""
    request = {"repo": "acme/web", "tag": "v1.0.0"}
    installation.create_container("moved", **request)
    first = installation.wait_for("moved", "Ready")
    old, domain = first.status.domain, "other.example"
    installation.kill_operator()
    installation.settings["containersDomain"] = domain
    try:
        installation.operator().wait_until_it_leads()

        def missing() -> dict[str, Any] | None:
            container = installation.container("moved")
            assert container is not None
            return condition_of(container, "DomainReady")

        told = until_sync(missing, what="the condition")
        assert told is not None
        assert (told["status"], told["reason"]) == ("False", "DomainNotFound")
        assert old in told["message"]
        (enclave,) = installation.enclaves("moved")
        assert (enclave.metadata.name, enclave.spec.hostnames) == (
            first.status.active_enclave,
            (old,),
        )
        installation.create_container("moved", **request, relaunch="1")

        def moved() -> bool:
            container = installation.container("moved")
            assert container is not None
            return (
                container.status.active_enclave != first.status.active_enclave
                and condition_of(container, "DomainReady") is None
            )

        until_sync(moved, within=120, what="the new enclave")
        second = installation.wait_for("moved", "Ready")
        assert second.status.domain == old.replace(CONTAINERS_DOMAIN, domain)
        page = pages.await_page(installation, "moved")
        assert page.certificate_names == (second.status.domain,)
    finally:
        installation.kill_operator()
        del installation.settings["containersDomain"]
        installation.operator().wait_until_it_leads()
