"""What the operator maintains beside Containers: namespaces, Hosts, counts, garbage collection."""

from collections.abc import Iterator
from typing import Any

import pytest

from dev.cluster import Cluster
from tests.support.programs.operator import Installation, file_text, manifest, operator_lock
from tests.support.waiting import until_sync

IMAGE = "registry.invalid/web@sha256:" + "ab" * 32


@pytest.fixture(scope="module")
def operated(
    api_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    with operator_lock(api_cluster.name):
        folder = tmp_path_factory.mktemp("installation")
        installation = Installation(api_cluster, folder, {"claimAgeSeconds": 1})
        try:
            installation.prepare()
            installation.create_organization()
            installation.repository("acme/web").release("v1", file_text(IMAGE))
            installation.operator().wait_until_it_leads()
            yield installation
        finally:
            installation.end()


def named(installation: Installation, kind: str, name: str) -> dict[str, Any] | None:
    found = (
        each for each in installation.objects(kind, every=True) if each["metadata"]["name"] == name
    )
    return next(found, None)


def await_ready(installation: Installation, kind: str, name: str) -> None:
    """Wait until an object is ready, perhaps after a try that failed."""
    await_condition(installation, kind, name, "True")


def await_condition(
    installation: Installation, kind: str, name: str, status: str, reason: str = ""
) -> None:
    """Wait until the condition Ready has a status and, unless it is empty, a reason."""

    def reported() -> bool:
        body = named(installation, kind, name)
        assert body is not None
        conditions = body.get("status", {}).get("conditions", [])
        ready = next((each for each in conditions if each["type"] == "Ready"), None)
        assert ready is not None, conditions
        assert ready["status"] == status, ready
        assert reason in ("", ready["reason"]), ready
        return True

    until_sync(reported, within=60, what=f"the condition Ready of {kind} {name}")


def test_a_namespace_is_created_and_isolated(operated: Installation) -> None:
    slug = f"{operated.slug}-new"
    operated.apply(manifest("Organization", slug, {"namespace": f"ns-{slug}"}))
    try:
        await_ready(operated, "organizations.cloister.dev", slug)
        namespace = named(operated, "namespaces", f"ns-{slug}")
        assert namespace is not None
        assert namespace["metadata"]["labels"]["cloister.dev/organization"] == slug
        policies = operated.objects("networkpolicies", every=True)
        mine = [each for each in policies if each["metadata"]["namespace"] == f"ns-{slug}"]
        names = [each["metadata"]["name"] for each in mine]
        assert names == ["cloister-enclaves", "cloister-shells"]
        budgets = operated.objects("poddisruptionbudgets", every=True)
        (budget,) = (each for each in budgets if each["metadata"]["namespace"] == f"ns-{slug}")
        assert budget["spec"]["minAvailable"] == 2**31 - 1
    finally:
        operated.kubectl("delete", f"organization/{slug}", f"namespace/ns-{slug}", "--wait=false")


@pytest.mark.attack("foreign-namespace")
@pytest.mark.parametrize(
    ("which", "reason"), [("the operator's", "NamespaceRefused"), ("another", "NamespaceNotOurs")]
)
def test_another_namespace_is_left_alone(operated: Installation, which: str, reason: str) -> None:
    slug = f"{operated.slug}-other"
    namespace = operated.system if which == "the operator's" else f"taken-{operated.slug}"
    operated.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        manifest("Organization", slug, {"namespace": namespace}),
    )
    try:
        await_condition(operated, "organizations.cloister.dev", slug, "False", reason)
        found = named(operated, "namespaces", namespace)
        assert found is not None
        assert "cloister.dev/organization" not in found["metadata"].get("labels", {})
        policies = operated.objects("networkpolicies", every=True)
        assert namespace not in {each["metadata"]["namespace"] for each in policies}
    finally:
        operated.kubectl("delete", f"organization/{slug}")
        if namespace != operated.system:
            operated.kubectl("delete", "namespace", namespace, "--wait=false")


def test_a_host_with_a_tee_needs_no_signed_certificates(operated: Installation) -> None:
    name = f"{operated.slug}-tee"
    spec = {"tee": "SNP", "teeUnit": "Node", "attestationService": "unix:///run/aa.sock"}
    operated.apply(manifest("Host", name, {**spec, "networkIsolation": "Pod"}))
    try:
        await_ready(operated, "hosts.cloister.dev", name)
    finally:
        operated.kubectl("delete", f"host/{name}")


def test_a_host_reports_that_enclaves_cannot_reach_the_api(operated: Installation) -> None:
    def reported() -> dict[str, Any] | None:
        found = named(operated, "hosts.cloister.dev", operated.host)
        conditions = found["status"].get("conditions", []) if found else []
        return next((each for each in conditions if each["type"] == "ApiReachable"), None)

    reach = until_sync(reported, within=60, what="what the Host reports about the API")
    assert reach is not None
    assert (reach["status"], reach["reason"]) == ("False", "ApiAddressMissing")
    assert "Set apiAddress" in reach["message"]


def test_a_paused_container_is_left_alone(operated: Installation) -> None:
    body = manifest(
        "Container",
        "paused",
        {"repo": "acme/web", "tag": "v9", "host": operated.host},
        operated.namespace,
    )
    body["metadata"]["annotations"] = {"cloister.dev/paused": "true"}
    operated.apply(body)
    operated.create_container("running", repo="acme/web", tag="v9")
    operated.wait_for("running", "Stalled")
    paused = operated.container("paused")
    assert paused is not None
    assert paused.status.phase is None
    body["metadata"]["annotations"] = {}
    operated.apply(body)
    operated.wait_for("paused", "Stalled", reason="TagNotFound")


def test_counts_of_an_organization_follow_its_containers(operated: Installation) -> None:
    operated.apply(manifest("Deployment", "counted", {"repo": "acme/counted"}, operated.namespace))
    operated.repository("acme/counted")
    for name in ("c-one", "c-two"):
        operated.create_container(name, repo="acme/counted", tag="v1")
        operated.wait_for(name, "Stalled", reason="TagNotFound")

    def counts(instances: int) -> bool:
        body = named(operated, "deployments.cloister.dev", "counted")
        assert body is not None
        found = body.get("status", {}).get("counts", {})
        return (found.get("instances"), found.get("failed")) == (instances, instances)

    until_sync(lambda: counts(2), within=60, what="two counted Containers")
    operated.kubectl("delete", "ctr", "c-one", "-n", operated.namespace)
    until_sync(lambda: counts(1), within=60, what="one counted Container")


def value(installation: Installation, name: str) -> dict[str, Any]:
    """Write a core Secret as a request of the facade that was interrupted leaves it."""
    labels = {"cloister.dev/value-of": "secret"}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": installation.namespace, "labels": labels},
        "stringData": {"value": "made-up"},
    }


def test_orphaned_claims_deployments_and_secrets_are_deleted(operated: Installation) -> None:
    hostname = f"{operated.slug}.abandoned.example"
    holder = {"namespace": operated.namespace, "name": "never-made"}
    ours = manifest("Deployment", "swept", {"repo": "acme/swept"}, operated.namespace)
    ours["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "cloister"}
    theirs = manifest("Deployment", "kept", {"repo": "acme/kept"}, operated.namespace)
    spec = {"name": "NAMED", "secretRef": {"name": "value-named"}}
    operated.apply(
        manifest("HostnameClaim", hostname, {"holder": holder}),
        ours,
        theirs,
        value(operated, "value-left"),
        # First: a value that nothing names is deleted a second later.
        manifest("Secret", "named.env", spec, operated.namespace),
        value(operated, "value-named"),
    )

    def swept() -> bool:
        claim = named(operated, "hostnameclaims.cloister.dev", hostname)
        made = named(operated, "deployments.cloister.dev", "swept")
        return claim is None and made is None and named(operated, "secrets", "value-left") is None

    until_sync(swept, within=60, what="the end of what was abandoned")
    assert named(operated, "deployments.cloister.dev", "kept") is not None
    assert named(operated, "secrets", "value-named") is not None
