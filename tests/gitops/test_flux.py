"""What docs/gitops/flux.md says, with Flux's own controllers (`make test-gitops`)."""

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Container
from dev.cluster import Cluster
from tests.support.gitops.flux import (
    CONTROLLERS,
    KUSTOMIZATION,
    RELEASE,
    SOURCE,
    Flux,
    condition,
    flux_on,
)
from tests.support.gitops.pages import Page
from tests.support.gitops.place import Place, reason_of
from tests.support.programs.operator import condition_of, manifest
from tests.support.waiting import until_sync

pytestmark = pytest.mark.programs(*CONTROLLERS)

CONTAINER = of(Container)
MANAGER = "kustomize-controller"
RELEASE_MANAGER = "helm-controller"


@pytest.fixture(scope="module")
def page(place: Place) -> Page:
    return Page("flux", {"https://git.example.com": place.git.base})


@pytest.fixture(scope="module")
def flux(
    api_cluster: Cluster, place: Place, page: Page, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Flux]:
    """Provide Flux, with the page's setup applied but for secrets and chart."""
    folder = tmp_path_factory.mktemp("flux")
    with flux_on(api_cluster, place.direct, place.namespace, folder) as found:
        setup = page.manifests()
        web = setup.pop(("Container", "web"))
        setup.pop(("Kustomization", "acme-secrets"))
        setup.pop(("HelmRelease", "acme"))
        mine = [
            body for body in setup.values() if body["metadata"].get("namespace") == place.namespace
        ]
        place.commit(web=web)
        place.installation.apply(*mine)
        yield found
        place.installation.kubectl(
            "delete", "kustomizations", "--all", "-n", place.namespace, "--timeout=60s"
        )


@pytest.fixture
def web(place: Place, page: Page, flux: Flux) -> dict[str, Any]:
    """Provide the page's Container, which serves, and its Kustomization is ready."""
    place.waiting.clear()
    place.gateway.held = False
    body = page.manifests()["Container", "web"]
    follow(place, flux, web=body)
    place.wait("web", lambda found: found.status.current_tag == "v1.0.0", "serves")
    return deepcopy(body)


def follow(place: Place, flux: Flux, **bodies: dict[str, Any]) -> str:
    """Commit Containers, wait until Flux says that all are ready, and return the commit."""
    commit = push(place, flux, **bodies)
    flux.wait_for("True", commit, reason="ReconciliationSucceeded")
    return commit


def push(place: Place, flux: Flux, **bodies: dict[str, Any]) -> str:
    """Commit Containers and have Flux fetch them at once; return the commit."""
    commit = place.commit(**bodies)
    flux.reconcile(SOURCE, "acme")
    return commit


def written_by_flux(place: Place) -> dict[str, Any]:
    """Return what the server says of Flux's last write of the Container."""
    body = place.get(CONTAINER, "web")
    (entry,) = (each for each in body["metadata"]["managedFields"] if each["manager"] == MANAGER)
    return {"entry": entry, "generation": body["metadata"]["generation"]}


def test_it_waits_while_the_first_release_starts(place: Place, flux: Flux, page: Page) -> None:
    body = page.manifests()["Container", "web"]
    place.waiting.add("fresh")
    body["metadata"]["name"] = "fresh"
    commit = push(place, flux, fresh=body)
    place.wait("fresh", lambda found: bool(reason_of(found, "Reconciling")), "deploying")
    flux.wait_while_checking(commit)
    # Meanwhile another commit is fetched and not applied.
    body["spec"]["tag"] = "v1.1.0"
    later = push(place, flux, fresh=body)
    artifact = place.get(SOURCE, "acme")["status"]["artifact"]
    assert artifact["revision"] == f"main@sha1:{later}"
    flux.wait_while_checking(commit)
    place.waiting.clear()
    flux.wait_for("True", later, reason="ReconciliationSucceeded")
    found = place.container("fresh")
    assert found is not None
    assert reason_of(found, "Ready") == "Serving"


def test_another_tag_is_an_update(place: Place, flux: Flux, web: dict[str, Any]) -> None:
    place.waiting.add("web")
    web["spec"]["tag"] = "v1.1.0"
    commit = push(place, flux, web=web)
    found = place.wait("web", lambda it: bool(reason_of(it, "Reconciling")), "updating")
    assert found.status.current_tag == "v1.0.0"
    flux.wait_while_checking(commit)
    place.waiting.clear()
    flux.wait_for("True", commit, reason="ReconciliationSucceeded")
    place.wait("web", lambda it: it.status.current_tag == "v1.1.0", "serves the update")


def test_stopped_as_asked_is_ready(place: Place, flux: Flux, web: dict[str, Any]) -> None:
    web["spec"]["state"] = "Stopped"
    follow(place, flux, web=web)
    place.wait("web", lambda it: reason_of(it, "Ready") == "Stopped", "stopped")
    web["spec"]["state"] = "Running"
    follow(place, flux, web=web)
    place.wait("web", lambda it: reason_of(it, "Ready") == "Serving", "serves again")


def test_a_staged_update_is_promoted_in_the_repository(
    place: Place, flux: Flux, web: dict[str, Any]
) -> None:
    web["spec"] |= {"tag": "v1.1.0", "staging": True}
    follow(place, flux, web=web)
    found = place.wait("web", lambda it: reason_of(it, "Ready") == "AwaitingPromotion", "staged")
    assert found.status.current_tag == "v1.0.0"
    assert found.status.update is not None
    web["spec"]["promote"] = found.status.update.revision
    follow(place, flux, web=web)
    place.wait("web", lambda it: it.status.current_tag == "v1.1.0", "promoted")


def test_a_failed_update_is_named_and_explained_in_the_container(
    place: Place, flux: Flux, web: dict[str, Any], page: Page
) -> None:
    web["spec"]["tag"] = "v9.9.9"
    commit = push(place, flux, web=web)
    said = flux.wait_for("False", commit, reason="HealthCheckFailed")
    stalled = "failed early due to stalled resources: [Container/org-acme/web status: 'Failed']"
    assert stalled in said
    found = place.wait("web", lambda it: reason_of(it, "Stalled") == "UpdateFailed", "failed")
    assert found.status.current_tag == "v1.0.0"
    condition = condition_of(found, "Stalled")
    assert condition is not None
    assert condition["message"] not in said
    (command,) = page.commands()
    assert command[0] == "kubectl"
    assert place.installation.kubectl(*command[1:]) == condition["message"]

    web["spec"]["tag"] = "v1.2.0"
    follow(place, flux, web=web)
    place.wait("web", lambda it: it.status.current_tag == "v1.2.0", "serves the next commit")


def test_what_never_served_fails_too_and_a_revert_undoes_it(
    place: Place, flux: Flux, web: dict[str, Any]
) -> None:
    other = deepcopy(web)
    other["metadata"]["name"] = "other"
    other["spec"]["tag"] = "v9.9.9"
    commit = push(place, flux, web=web, other=other)
    said = flux.wait_for("False", commit, reason="HealthCheckFailed")
    assert "[Container/org-acme/other status: 'Failed']" in said
    follow(place, flux, web=web)
    assert place.container("other") is None


def test_a_lost_pod_is_waited_for(place: Place, flux: Flux, web: dict[str, Any]) -> None:
    commit = follow(place, flux, web=web)
    place.waiting.add("web")
    place.lose_pods("web")
    place.wait("web", lambda it: bool(reason_of(it, "Reconciling")), "restored")
    flux.request(KUSTOMIZATION, "acme-containers")
    flux.wait_while_checking(commit)
    place.waiting.clear()
    flux.wait_for("True", commit, reason="ReconciliationSucceeded")


def test_a_route_that_the_gateway_has_not_taken_is_waited_for(
    place: Place, flux: Flux, web: dict[str, Any]
) -> None:
    place.gateway.held = True
    routed = deepcopy(web)
    routed["metadata"]["name"] = "routed"
    commit = push(place, flux, web=web, routed=routed)
    place.wait("routed", lambda it: reason_of(it, "Reconciling") == "RoutePending", "no route")
    flux.wait_while_checking(commit)
    place.gateway.held = False
    flux.wait_for("True", commit, reason="ReconciliationSucceeded")


def test_a_change_that_a_pause_holds_back_is_waited_for(
    place: Place, flux: Flux, web: dict[str, Any]
) -> None:
    commit = follow(place, flux, web=web)
    pause(place, "true")
    place.wait("web", lambda it: reason_of(it, "Paused") == "Paused", "paused")
    flux.reconcile(KUSTOMIZATION, "acme-containers")
    flux.wait_for("True", commit)
    web["spec"]["tag"] = "v1.1.0"
    commit = push(place, flux, web=web)
    flux.wait_while_checking(commit)
    pause(place, None)
    flux.wait_for("True", commit, reason="ReconciliationSucceeded")


def pause(place: Place, value: str | None) -> None:
    """Pause the page's Container, or go on, as an administrator does."""
    patch = {"metadata": {"annotations": {"cloister.dev/paused": value}}}
    place.direct.patch(CONTAINER, "web", patch, place.namespace).raise_for_status()


def test_what_is_removed_from_the_repository_is_deleted(
    place: Place, flux: Flux, web: dict[str, Any]
) -> None:
    other = deepcopy(web)
    other["metadata"]["name"] = "other"
    follow(place, flux, web=web, other=other)
    assert {each.spec.container.name for each in place.installation.enclaves()} >= {"web", "other"}
    follow(place, flux, web=web)
    until_sync(lambda: place.container("other") is None, what="the Container to go")
    until_sync(lambda: not place.installation.enclaves("other"), what="its enclaves to go")
    assert place.container("web") is not None


def test_fields_of_the_repository_are_refused_over_rest(
    place: Place, flux: Flux, web: dict[str, Any]
) -> None:
    commit = follow(place, flux, web=web)
    before = written_by_flux(place)
    path = f"/api/containers/{place.container_id('web')}"
    refused = place.rest.post(f"{path}/relaunch", json={"tag": "v1.1.0"})
    assert refused.status_code == 409
    assert MANAGER in refused.json()["error"]
    assert place.rest.delete(path).status_code == 409
    flux.reconcile(KUSTOMIZATION, "acme-containers")
    flux.wait_for("True", commit)
    assert written_by_flux(place) == before


def test_nothing_is_written_without_a_commit(place: Place, flux: Flux, web: dict[str, Any]) -> None:
    web["spec"]["autoUpdate"] = True
    commit = follow(place, flux, web=web)
    # The newest release is published later than the tag of spec, so it is followed.
    place.wait("web", lambda it: it.status.current_tag == "v1.2.0", "follows its repository")
    before = written_by_flux(place)
    for _ in range(3):
        flux.reconcile(KUSTOMIZATION, "acme-containers")
        flux.wait_for("True", commit)
    assert written_by_flux(place) == before
    found = place.container("web")
    assert found is not None
    assert (found.spec.tag, found.status.current_tag) == ("v1.0.0", "v1.2.0")
    # Following ends at what serves, so an older release has to be a change of the tag.
    del web["spec"]["autoUpdate"]
    web["spec"]["tag"] = "v1.2.0"
    follow(place, flux, web=web)


def test_a_change_by_hand_is_put_back(place: Place, flux: Flux, web: dict[str, Any]) -> None:
    commit = follow(place, flux, web=web)
    patch = json.dumps({"spec": {"tag": "v1.1.0"}})
    place.installation.kubectl(
        "patch", "ctr", "web", "-n", place.namespace, "--type=merge", "-p", patch
    )
    flux.reconcile(KUSTOMIZATION, "acme-containers")
    flux.wait_for("True", commit)
    found = place.wait("web", lambda it: reason_of(it, "Ready") == "Serving", "serves")
    assert (found.spec.tag, found.status.current_tag) == ("v1.0.0", "v1.0.0")


def test_what_is_deleted_by_hand_is_waited_for_and_comes_back(
    place: Place, flux: Flux, web: dict[str, Any]
) -> None:
    quick = {"spec": {"timeout": "20s"}}
    place.direct.patch(KUSTOMIZATION, "acme-containers", quick, place.namespace).raise_for_status()
    commit = follow(place, flux, web=web)
    # Somebody else's finalizer holds the object, as a slow end of its enclave does.
    hold = {"metadata": {"finalizers": ["example.com/hold"]}}
    place.direct.patch(CONTAINER, "web", hold, place.namespace).raise_for_status()
    uid = place.get(CONTAINER, "web")["metadata"]["uid"]
    place.installation.kubectl("delete", "ctr", "web", "-n", place.namespace, "--wait=false")
    try:
        flux.request(KUSTOMIZATION, "acme-containers")
        flux.wait_while_checking(commit)
        said = flux.wait_for("False", commit, reason="HealthCheckFailed")
        assert "timeout waiting for: [Container/org-acme/web status: 'Terminating']" in said
    finally:
        free = {"metadata": {"finalizers": None}}
        place.direct.patch(CONTAINER, "web", free, place.namespace).raise_for_status()
        slow = {"spec": {"timeout": "15m"}}
        place.direct.patch(KUSTOMIZATION, "acme-containers", slow, place.namespace)
    flux.reconcile(KUSTOMIZATION, "acme-containers")
    flux.wait_for("True", commit)

    def is_back() -> bool:
        found = place.container("web")
        return found is not None and found.metadata.uid != uid

    until_sync(is_back, within=90, what="another Container of the name")


def test_containers_wait_for_the_secrets_that_they_depend_on(
    place: Place, flux: Flux, page: Page, web: dict[str, Any]
) -> None:
    namespace = place.namespace
    secret = manifest("Secret", "key", {"name": "KEY", "secretRef": {"name": "key"}}, namespace)
    late = deepcopy(web)
    late["metadata"]["name"] = "late"
    files = {"secrets/key": secret, "containers/web": web, "containers/late": late}
    depends = {"spec": {"dependsOn": [{"name": "acme-secrets"}]}}
    place.direct.patch(KUSTOMIZATION, "acme-containers", depends, namespace).raise_for_status()
    try:
        commit = place.commit_files({f"{path}.yaml": body for path, body in files.items()})
        flux.reconcile(SOURCE, "acme")
        place.installation.apply(page.manifests()["Kustomization", "acme-secrets"])
        flux.wait_while_checking(commit, name="acme-secrets")

        def held_back() -> bool:
            body = place.get(KUSTOMIZATION, "acme-containers")
            (ready,) = (each for each in body["status"]["conditions"] if each["type"] == "Ready")
            return bool(ready["reason"] == "DependencyNotReady")

        until_sync(held_back, what="a Kustomization that waits for another one")
        assert place.container("late") is None
        value = ("create", "secret", "generic", "key", "--from-literal=value=x", "-n", namespace)
        place.installation.kubectl(*value)
        flux.wait_for("True", commit, name="acme-secrets")
        flux.wait_for("True", commit)
        assert place.container("late") is not None
    finally:
        free = {"spec": {"dependsOn": None}}
        place.direct.patch(KUSTOMIZATION, "acme-containers", free, namespace)
        place.installation.kubectl(
            "delete", "kustomization", "acme-secrets", "-n", namespace, "--timeout=60s"
        )


def test_containers_of_a_chart_are_waited_for_and_refused_over_rest(
    place: Place, flux: Flux, page: Page, web: dict[str, Any]
) -> None:
    packed = deepcopy(web)
    packed["metadata"]["name"] = "packed"
    place.waiting.add("packed")
    place.commit_files(
        {
            "containers/web.yaml": web,
            "chart/Chart.yaml": {"apiVersion": "v2", "name": "acme", "version": "0.1.0"},
            "chart/templates/packed.yaml": packed,
        }
    )
    flux.reconcile(SOURCE, "acme")

    def said(status: str) -> bool:
        found = condition(place.get(RELEASE, "acme"), "Ready")
        return found is not None and found["status"] == status

    try:
        place.installation.apply(page.manifests()["HelmRelease", "acme"])
        flux.wait(lambda: place.container("packed") is not None, "the Container of the chart")
        place.wait("packed", lambda it: bool(reason_of(it, "Reconciling")), "deploying")
        assert said("Unknown")
        place.waiting.clear()
        flux.wait(lambda: said("True"), "a HelmRelease that is ready")
        found = place.wait("packed", lambda it: reason_of(it, "Ready") == "Serving", "serves")
        generation = found.metadata.generation
        path = f"/api/containers/{place.container_id('packed')}"
        for refused in (
            place.rest.post(f"{path}/relaunch", json={"tag": "v1.1.0"}),
            place.rest.delete(path),
        ):
            assert refused.status_code == 409
            assert RELEASE_MANAGER in refused.json()["error"]
        body = place.get(CONTAINER, "packed")
        assert body["metadata"]["generation"] == generation
        writers = {
            each["manager"]
            for each in body["metadata"]["managedFields"]
            if each.get("subresource") != "status" and "f:spec" in each["fieldsV1"]
        }
        assert writers == {RELEASE_MANAGER}
    finally:
        where = ("helmrelease", "acme", "-n", place.namespace)
        place.installation.kubectl("delete", *where, "--ignore-not-found", "--timeout=60s")
    until_sync(lambda: place.container("packed") is None, what="the Container to go")
