"""What docs/gitops/argocd.md says, with Argo CD itself (`make test-gitops`)."""

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Container
from dev.cluster import Cluster, KubectlError
from tests.support.gitops.argocd import ArgoCD, argocd_on
from tests.support.gitops.pages import ROOT, Page
from tests.support.gitops.place import Place, reason_of
from tests.support.programs.operator import condition_of, manifest
from tests.support.waiting import until_sync

pytestmark = pytest.mark.programs("argocd")

CONTAINER = of(Container)
MANAGER = "argocd-controller"
WAVE = "argocd.argoproj.io/sync-wave"


@pytest.fixture(scope="module")
def page(place: Place) -> Page:
    return Page("argocd", {"https://git.example.com": place.git.base})


@pytest.fixture(scope="module")
def argocd(
    api_cluster: Cluster, place: Place, page: Page, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ArgoCD]:
    """Provide Argo CD, with the page's setup applied."""
    with argocd_on(api_cluster, place.direct, tmp_path_factory.mktemp("argocd")) as found:
        for program, *arguments in page.commands():
            assert program == "kubectl"
            place.installation.kubectl(
                *(word.replace("docs/gitops", str(ROOT / "docs/gitops")) for word in arguments)
            )
        setup = page.manifests()
        web = setup.pop(("Container", "web"))
        place.commit(web=web)
        place.installation.apply(*setup.values())
        yield found


@pytest.fixture
def web(place: Place, page: Page, argocd: ArgoCD) -> dict[str, Any]:
    """Provide the page's Container, which serves, and its Application is healthy."""
    place.waiting.clear()
    place.gateway.held = False
    body = page.manifests()["Container", "web"]
    follow(place, argocd, web=body)

    def serves(found: Container) -> bool:
        return found.status.current_tag == "v1.0.0" and reason_of(found, "Ready") == "Serving"

    place.wait("web", serves, "serves")
    return deepcopy(body)


def follow(place: Place, argocd: ArgoCD, **bodies: dict[str, Any]) -> str:
    """Commit objects, wait until all are in sync and healthy, and return the commit."""
    commit = push(place, argocd, **bodies)
    argocd.wait_for("Healthy", commit)
    return commit


def push(place: Place, argocd: ArgoCD, **bodies: dict[str, Any]) -> str:
    """Commit objects and have Argo CD read the repository at once; return the commit."""
    commit = place.commit(**bodies)
    argocd.refresh()
    return commit


def named(body: dict[str, Any], name: str, wave: int = 0) -> dict[str, Any]:
    """Return the same object by another name, in a sync wave."""
    metadata = {**body["metadata"], "name": name, "annotations": {WAVE: str(wave)}}
    return {**deepcopy(body), "metadata": metadata}


def health(argocd: ArgoCD, name: str) -> dict[str, Any]:
    """Return what the user interface says of a Container."""
    (node,) = (
        each for each in argocd.tree() if (each["kind"], each["name"]) == ("Container", name)
    )
    found: dict[str, Any] = node["health"]
    return found


def last_write(place: Place, argocd: ArgoCD) -> tuple[Any, ...]:
    """Return what the server says of Argo CD's last write, and Argo CD of its last sync."""
    body = place.get(CONTAINER, "web")
    (entry,) = (each for each in body["metadata"]["managedFields"] if each["manager"] == MANAGER)
    operation = argocd.application()["status"]["operationState"]
    return entry, body["metadata"]["generation"], operation["finishedAt"]


def test_it_is_progressing_until_the_first_release_serves(
    place: Place, argocd: ArgoCD, web: dict[str, Any]
) -> None:
    place.waiting.add("fresh")
    commit = push(place, argocd, web=web, fresh=named(web, "fresh"))
    place.wait("fresh", lambda found: bool(reason_of(found, "Reconciling")), "deploying")
    argocd.wait_for("Progressing", commit)
    place.waiting.clear()
    argocd.wait_for("Healthy", commit)


def test_another_tag_is_an_update(place: Place, argocd: ArgoCD, web: dict[str, Any]) -> None:
    place.waiting.add("web")
    web["spec"]["tag"] = "v1.1.0"
    commit = push(place, argocd, web=web)
    found = place.wait("web", lambda it: bool(reason_of(it, "Reconciling")), "updating")
    assert found.status.current_tag == "v1.0.0"
    argocd.wait_for("Progressing", commit)
    place.waiting.clear()
    argocd.wait_for("Healthy", commit)
    place.wait("web", lambda it: it.status.current_tag == "v1.1.0", "serves the update")


def test_stopped_as_asked_is_healthy(place: Place, argocd: ArgoCD, web: dict[str, Any]) -> None:
    web["spec"]["state"] = "Stopped"
    commit = push(place, argocd, web=web)
    place.wait("web", lambda it: reason_of(it, "Ready") == "Stopped", "stopped")
    argocd.wait_for("Healthy", commit)


def test_a_field_that_is_removed_gets_its_default(
    place: Place, argocd: ArgoCD, web: dict[str, Any]
) -> None:
    follow(place, argocd, web={**web, "spec": {**web["spec"], "state": "Stopped"}})
    place.wait("web", lambda it: reason_of(it, "Ready") == "Stopped", "stopped")
    follow(place, argocd, web=web)
    place.wait("web", lambda it: reason_of(it, "Ready") == "Serving", "serves again")


def test_a_staged_update_is_suspended_until_the_repository_promotes_it(
    place: Place, argocd: ArgoCD, web: dict[str, Any]
) -> None:
    web["spec"] |= {"tag": "v1.1.0", "staging": True}
    commit = push(place, argocd, web=web)
    found = place.wait("web", lambda it: reason_of(it, "Ready") == "AwaitingPromotion", "staged")
    argocd.wait_for("Suspended", commit)
    assert found.status.update is not None
    web["spec"]["promote"] = found.status.update.revision
    follow(place, argocd, web=web)
    place.wait("web", lambda it: it.status.current_tag == "v1.1.0", "promoted")


def test_a_failed_update_is_degraded_and_explained_in_the_tree(
    place: Place, argocd: ArgoCD, web: dict[str, Any]
) -> None:
    web["spec"]["tag"] = "v9.9.9"
    commit = push(place, argocd, web=web)
    status = argocd.wait_for("Degraded", commit)
    found = place.wait("web", lambda it: reason_of(it, "Stalled") == "UpdateFailed", "failed")
    assert found.status.current_tag == "v1.0.0"
    condition = condition_of(found, "Stalled")
    assert condition is not None
    explained = {"status": "Degraded", "message": f"UpdateFailed: {condition['message']}"}
    argocd.wait(lambda: health(argocd, "web").items() >= explained.items(), "the explanation")
    assert condition["message"] not in json.dumps(status)
    # The release before it serves; the commit is reverted.
    follow(place, argocd, web=named(web, "web") | {"spec": {**web["spec"], "tag": "v1.0.0"}})


def test_a_lost_pod_and_a_route_that_is_not_taken_are_progressing(
    place: Place, argocd: ArgoCD, web: dict[str, Any]
) -> None:
    commit = follow(place, argocd, web=web)
    place.waiting.add("web")
    place.lose_pods("web")
    argocd.wait_for("Progressing", commit)
    place.waiting.clear()
    argocd.wait_for("Healthy", commit)
    place.gateway.held = True
    commit = push(place, argocd, web=web, routed=named(web, "routed"))
    place.wait("routed", lambda it: reason_of(it, "Reconciling") == "RoutePending", "no route")
    argocd.wait_for("Progressing", commit)
    place.gateway.held = False
    argocd.wait_for("Healthy", commit)


def test_a_change_that_a_pause_holds_back_is_progressing(
    place: Place, argocd: ArgoCD, web: dict[str, Any]
) -> None:
    commit = follow(place, argocd, web=web)
    pause(place, "true")
    place.wait("web", lambda it: reason_of(it, "Paused") == "Paused", "paused")
    argocd.refresh()
    argocd.wait_for("Healthy", commit)
    web["spec"]["tag"] = "v1.1.0"
    commit = push(place, argocd, web=web)
    argocd.wait_for("Progressing", commit)
    pause(place, None)
    argocd.wait_for("Healthy", commit)


def pause(place: Place, value: str | None) -> None:
    """Pause the page's Container, or go on, as an administrator does."""
    patch = {"metadata": {"annotations": {"cloister.dev/paused": value}}}
    place.direct.patch(CONTAINER, "web", patch, place.namespace).raise_for_status()


def test_a_change_by_hand_is_put_back(place: Place, argocd: ArgoCD, web: dict[str, Any]) -> None:
    patch = json.dumps({"spec": {"tag": "v1.1.0"}})
    place.installation.kubectl(
        "patch", "ctr", "web", "-n", place.namespace, "--type=merge", "-p", patch
    )

    def healed() -> bool:
        found = place.container("web")
        return found is not None and found.spec.tag == "v1.0.0"

    argocd.wait(healed, "the tag of the repository")
    place.wait("web", lambda it: reason_of(it, "Ready") == "Serving", "serves")


def test_the_last_object_is_deleted_only_where_that_is_allowed(
    place: Place, argocd: ArgoCD, web: dict[str, Any], page: Page
) -> None:
    follow(place, argocd, web=web, other=named(web, "other"))
    follow(place, argocd, web=web)
    until_sync(lambda: place.container("other") is None, within=60, what="the Container to go")
    assert place.container("web") is not None

    note = {"containers/README.md": {"note": "no objects"}}
    place.commit_files(note)
    argocd.refresh()
    said = argocd.wait(lambda: argocd.condition("SyncError"), "a refusal")
    assert "auto-sync will wipe out all resources" in said
    assert "auto-sync will wipe out all resources" in " ".join(
        (ROOT / "docs/gitops/argocd.md").read_text().split()
    )
    assert place.container("web") is not None
    automated = page.manifests()["Application", "acme-containers"]["spec"]["syncPolicy"]
    allowed = {**automated["automated"], "allowEmpty": True}
    argocd.patch({"syncPolicy": {"automated": allowed}})
    try:
        argocd.refresh()
        until_sync(lambda: place.container("web") is None, within=60, what="the last to go")
    finally:
        argocd.patch({"syncPolicy": {"automated": {"allowEmpty": None}}})


def test_fields_of_the_repository_are_refused_over_rest(
    place: Place, argocd: ArgoCD, web: dict[str, Any]
) -> None:
    before = last_write(place, argocd)
    path = f"/api/containers/{place.container_id('web')}"
    refused = place.rest.post(f"{path}/relaunch", json={"tag": "v1.1.0"})
    assert refused.status_code == 409
    assert MANAGER in refused.json()["error"]
    assert place.rest.delete(path).status_code == 409
    argocd.refresh()
    assert last_write(place, argocd) == before


def test_nothing_is_written_without_a_commit(
    place: Place, argocd: ArgoCD, web: dict[str, Any]
) -> None:
    web["spec"]["autoUpdate"] = True
    commit = follow(place, argocd, web=web)
    place.wait("web", lambda it: it.status.current_tag == "v1.2.0", "follows its repository")
    argocd.wait_for("Healthy", commit)
    before = last_write(place, argocd)
    for _ in range(3):
        argocd.refresh()
        argocd.wait_for("Healthy", commit)
    assert last_write(place, argocd) == before
    # Following ends at what serves, so an older release has to be a change of the tag.
    del web["spec"]["autoUpdate"]
    web["spec"]["tag"] = "v1.2.0"
    follow(place, argocd, web=web)


def test_what_a_container_owns_is_shown_below_it(
    place: Place, argocd: ArgoCD, web: dict[str, Any]
) -> None:
    commit = follow(place, argocd, web=web)

    def below() -> bool:
        kinds = {each["kind"] for each in argocd.tree()}
        return {"Container", "Enclave", "Pod", "Service"} <= kinds

    argocd.wait(below, "the objects below the Container")
    status = argocd.wait_for("Healthy", commit)
    assert [(each["kind"], each["status"]) for each in status["resources"]] == [
        ("Container", "Synced")
    ]
    # The project lists them to be shown: nobody writes them through the repository.
    account = f"system:serviceaccount:{place.namespace}:acme-deployer"
    who = ("-n", place.namespace, "--as", account)
    for kind in ("enclaves.cloister.dev", "pods", "services"):
        for verb in ("create", "patch", "update", "delete"):
            with pytest.raises(KubectlError) as refused:
                place.installation.kubectl("auth", "can-i", verb, kind, *who)
            assert refused.value.stdout.strip() == "no"


def test_a_wave_waits_for_what_is_not_healthy(
    place: Place, argocd: ArgoCD, web: dict[str, Any]
) -> None:
    secret = manifest(
        "Secret", "key", {"name": "KEY", "secretRef": {"name": "key"}}, place.namespace
    )
    push(place, argocd, web=web, key=named(secret, "key", -1), late=named(web, "late", 1))
    until_sync(lambda: bool(place.installation.objects("csec")), what="the first wave")
    argocd.wait(lambda: waits_for(argocd, "cloister.dev/Secret/key"), "a sync that waits")
    assert place.container("late") is None
    value = ("create", "secret", "generic", "key", "--from-literal=value=x")
    place.installation.kubectl(*value, "-n", place.namespace)
    # The operator looks again after a minute.
    until_sync(lambda: place.container("late") is not None, within=120, what="the last wave")


def test_a_staged_update_holds_later_waves_back(
    place: Place, argocd: ArgoCD, web: dict[str, Any]
) -> None:
    web["spec"] |= {"tag": "v1.1.0", "staging": True}
    push(place, argocd, web=web, behind=named(web, "behind", 1))
    found = place.wait("web", lambda it: reason_of(it, "Ready") == "AwaitingPromotion", "staged")
    argocd.wait(lambda: waits_for(argocd, "cloister.dev/Container/web"), "a sync that waits")
    assert place.container("behind") is None
    # Somebody promotes it by hand, since no commit is taken meanwhile.
    assert found.status.update is not None
    patch = json.dumps({"spec": {"promote": found.status.update.revision}})
    place.installation.kubectl(
        "patch", "ctr", "web", "-n", place.namespace, "--type=merge", "-p", patch
    )
    until_sync(lambda: place.container("behind") is not None, within=60, what="the last wave")


def waits_for(argocd: ArgoCD, what: str) -> bool:
    """Return whether a sync runs that waits for an object."""
    operation = argocd.application()["status"].get("operationState", {})
    return operation.get("phase") == "Running" and what in operation.get("message", "")
