"""An Organization that is deleted outlives what runs in it, and leaves nothing.

There is no node: `tests.support.stand_ins.pod_status` writes the status of Pods.
"""

from typing import Any

from tests.support.programs.operator import Installation, manifest
from tests.support.stand_ins.pod_status import run_pod
from tests.support.waiting import until_sync

PATIENCE = 120.0


def organization(installation: Installation, slug: str) -> dict[str, Any] | None:
    found = installation.objects("organizations.cloister.dev", every=True)
    return next((each for each in found if each["metadata"]["name"] == slug), None)


def ready_of(installation: Installation, slug: str) -> dict[str, Any]:
    found = organization(installation, slug)
    assert found is not None, "it is gone"
    conditions = found.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == "Ready"), {})


def delete(installation: Installation, *what: str) -> None:
    installation.kubectl("delete", *what, "--wait=false")


def gone(installation: Installation, slug: str, namespace: str) -> bool:
    spaces = installation.objects("namespaces", every=True)
    names = {each["metadata"]["name"] for each in spaces}
    return organization(installation, slug) is None and namespace not in names


def made(installation: Installation, name: str) -> tuple[str, str]:
    """Create an Organization whose namespace the operator makes; return slug and namespace."""
    slug, namespace = f"{installation.slug}-{name}", f"ns-{installation.slug}-{name}"
    spec = {
        "namespace": namespace,
        "billing": {"containerSubscription": True},
        "entitlements": {"hostSelection": True},
    }
    installation.apply(manifest("Organization", slug, spec))
    until_sync(
        lambda: ready_of(installation, slug).get("status") == "True",
        within=PATIENCE,
        what="the namespace",
    )
    return slug, namespace


def container(installation: Installation, namespace: str, name: str) -> dict[str, Any]:
    spec = {"repo": "acme/web", "tag": "v1", "host": installation.host}
    return manifest("Container", name, spec, namespace)


def test_it_waits_for_its_containers_and_says_so(operated: Installation) -> None:
    slug, namespace = made(operated, "waits")
    operated.apply(container(operated, namespace, "one"))
    # Deleted right after the first Container was created: nothing has counted it yet.
    delete(operated, f"organization/{slug}")

    def waits() -> bool:
        ready = ready_of(operated, slug)
        return ready.get("reason") == "AwaitingContainers"

    until_sync(waits, within=PATIENCE, what="what it waits for")
    message = ready_of(operated, slug)["message"]
    assert "1 Container: one" in message
    assert f"kubectl delete ctr --all -n {namespace}" in message
    operated.apply(container(operated, namespace, "two"))

    def refused() -> bool:
        found = operated.kubectl(
            *("get", "ctr", "two", "-n", namespace),
            "-ojsonpath={.status.conditions[?(@.type=='Stalled')].reason}",
        )
        return found == "OrganizationDeleting"

    until_sync(refused, within=PATIENCE, what="that nothing new starts")
    # Right after the last Container was deleted: no count is waited for.
    delete(operated, "ctr", "--all", "-n", namespace)
    until_sync(lambda: gone(operated, slug, namespace), within=PATIENCE, what="its end")


def test_what_serves_goes_on_and_an_adopted_namespace_stays(operated: Installation) -> None:
    operated.create_container("web", repo="acme/web", tag="v1")
    until_sync(lambda: operated.enclaves("web"), within=PATIENCE, what="an Enclave")
    (enclave,) = operated.enclaves("web")
    run_pod(operated, enclave.metadata.name)
    operated.wait_for("web", "Available")
    delete(operated, f"organization/{operated.slug}")
    until_sync(
        lambda: "1 Container: web" in ready_of(operated, operated.slug).get("message", ""),
        within=PATIENCE,
        what="what it waits for",
    )
    assert [each.metadata.uid for each in operated.enclaves("web")] == [enclave.metadata.uid]
    delete(operated, "ctr", "web", "-n", operated.namespace)
    until_sync(
        lambda: organization(operated, operated.slug) is None, within=PATIENCE, what="its end"
    )
    spaces = {each["metadata"]["name"] for each in operated.objects("namespaces", every=True)}
    assert operated.namespace in spaces
    # The Service goes by garbage collection, once its Container has gone.
    kinds = ("enclaves.cloister.dev", "pods", "services", "networkpolicies", "pdb")
    until_sync(
        lambda: not any(operated.objects(kind) for kind in kinds),
        within=PATIENCE,
        what="that nothing is left in the namespace",
    )
    claims = operated.objects("hostnameclaims.cloister.dev", every=True)
    assert operated.namespace not in {each["spec"]["holder"]["namespace"] for each in claims}
