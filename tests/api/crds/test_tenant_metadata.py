"""What each account may write of annotations, labels, finalizers and owners of Cloister's kinds.

The tenant has cloister-tenant-edit in its namespace and nothing else.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.cluster.api_server import ApiResponse, ApiServer
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

OURS = "/apis/cloister.dev/v1alpha1"
PLACE = f"{OURS}/namespaces/org-acme"
FORBIDDEN = 403
UID = "3f8d9c1e-5a0b-4c57-8f0e-2b6d1a9c7e44"
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "containers": ("Container", {"repo": "acme/web", "tag": "v1.0.0"}),
    "deployments": ("Deployment", {"repo": "acme/web"}),
    "secrets": ("Secret", {"name": "KEY", "secretRef": {"name": "key"}}),
    "sshkeys": ("SSHKey", {"publicKey": "ssh-ed25519 AAAA me"}),
    "registrycredentials": (
        "RegistryCredential",
        {"registry": "ghcr", "secretRef": {"name": "ghcr"}},
    ),
    "domains": ("Domain", {"domain": "app.example.com"}),
}
CONTROLS = ("id", "paused", "adopted-at", "create-request", "replaces-uid", "trace", "anything")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tenant(policed: ApiServer) -> AsyncIterator[ApiServer]:
    """Provide a person with cloister-tenant-edit in org-acme."""
    await policed.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "eve", "namespace": "org-acme"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cloister-tenant-edit",
            },
            "subjects": [{"kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io"}],
        },
        "/apis/rbac.authorization.k8s.io/v1/namespaces/org-acme/rolebindings/eve",
    )
    person = policed.impersonating("eve", "system:authenticated")

    async def bound() -> bool:
        return (await person.post(f"{PLACE}/domains", body("domains", "b"), dryRun="All")).accepted

    await until(bound, what="the authorizer knows the RoleBinding")
    yield person
    await person.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def facade(policed: ApiServer) -> AsyncIterator[ApiServer]:
    """Provide the facade's account."""
    found = policed.impersonating(
        "system:serviceaccount:cloister-system:cloister-api", "system:authenticated"
    )
    yield found
    await found.aclose()


def body(plural: str, name: str, **metadata: Any) -> dict[str, Any]:
    kind, spec = KINDS[plural]
    head = {"apiVersion": "cloister.dev/v1alpha1", "kind": kind}
    return {**head, "metadata": {"name": name, **metadata}, "spec": spec}


def assert_refused(verdict: ApiResponse, *words: str) -> None:
    assert verdict.status == FORBIDDEN, verdict
    for word in words:
        assert word in verdict.message


@pytest.mark.attack("metadata")
@pytest.mark.parametrize("plural", KINDS)
async def test_a_tenant_controls_nothing_by_metadata(tenant: ApiServer, plural: str) -> None:
    name = "ghcr"
    path = f"{PLACE}/{plural}"
    for key in (*(f"cloister.dev/{word}" for word in CONTROLS), "sub.cloister.dev/anything"):
        made = body(plural, name, annotations={key: UID})
        assert_refused(await tenant.post(path, made), f"may not set, change or remove {key}")
        made = body(plural, name, labels={key: "x"})
        assert_refused(await tenant.post(path, made), "metadata.labels", key)
    for finalizer in ("evil.example/keep", "cloister.dev/metering", "orphan"):
        made = body(plural, name, finalizers=[finalizer])
        assert_refused(await tenant.post(path, made), f"may not add {finalizer}")
    assert (await tenant.post(path, body(plural, name))).accepted
    for change in (
        {"annotations": {"cloister.dev/paused": "true"}},
        {"labels": {"cloister.dev/container": "x"}},
        {"finalizers": ["evil.example/keep"]},
    ):
        verdict = await tenant.patch(f"{path}/{name}", {"metadata": change})
        assert_refused(verdict, f"metadata.{next(iter(change))}", "administrator")
    assert (await tenant.delete(f"{path}/{name}")).accepted


async def test_no_finalizer_of_a_tenant_keeps_a_core_secret(
    policed: ApiServer, tenant: ApiServer
) -> None:
    """The deletion of the namespace, and so of the Organization, would wait for it."""
    secrets = "/api/v1/namespaces/org-acme/secrets"

    def secret(**metadata: Any) -> dict[str, Any]:
        head = {"apiVersion": "v1", "kind": "Secret"}
        return {**head, "metadata": {"name": "value", **metadata}, "stringData": {"a": "b"}}

    for finalizer in ("evil.example/keep", "orphan", "cloister.dev/hold"):
        made = await tenant.post(secrets, secret(finalizers=[finalizer]))
        assert_refused(made, "metadata.finalizers", f"may not add {finalizer}")
    assert (await tenant.post(secrets, secret())).accepted
    path = f"{secrets}/value"
    kept = {"metadata": {"finalizers": ["evil.example/keep"]}}
    assert_refused(await tenant.patch(path, kept), "may not add evil.example/keep")
    # What an administrator has added stays the tenant's to remove, and other changes are free.
    assert (await policed.patch(path, kept)).accepted
    assert (await tenant.patch(path, {"stringData": {"a": "c"}})).accepted
    assert (await tenant.patch(path, {"metadata": {"finalizers": None}})).accepted
    assert (await tenant.delete(path)).accepted


async def test_a_tenant_writes_what_is_its_own(tenant: ApiServer) -> None:
    own = {"annotations": {"argocd.argoproj.io/sync-wave": "1", "notcloister.dev/x": "1"}}
    labels = {"app.kubernetes.io/managed-by": "flux", "team": "a"}
    made = await tenant.post(f"{PLACE}/domains", body("domains", "own", **own, labels=labels))
    assert made.accepted, made.message
    path = f"{PLACE}/domains/own"
    for value in ("2026-11-25T08:00:00Z", "2026-11-25T08:00:01Z", None):
        change = {"annotations": {"cloister.dev/requested-at": value}, "labels": {"team": value}}
        change["labels"]["team"] = None
        verdict = await tenant.patch(path, {"metadata": change})
        assert verdict.accepted, verdict.message
    held = await tenant.patch(path, {"metadata": {"finalizers": ["foregroundDeletion"]}})
    assert held.accepted, held.message
    let_go = await tenant.patch(path, {"metadata": {"finalizers": None}})
    assert let_go.accepted, let_go.message
    assert (await tenant.delete(path, propagationPolicy="Background")).accepted


async def test_what_server_side_apply_gave_it_takes_away(tenant: ApiServer) -> None:
    path = f"{PLACE}/domains/applied"
    with_it = body("domains", "applied", annotations={"cloister.dev/requested-at": "1"})
    for manifest in (with_it, body("domains", "applied")):
        verdict = await tenant.patch(path, manifest, form="apply", fieldManager="flux")
        assert verdict.accepted, verdict.message
    assert "annotations" not in verdict.body["metadata"]
    await tenant.delete(path)


async def test_what_an_administrator_set_stays(policed: ApiServer, tenant: ApiServer) -> None:
    await tenant.post(f"{PLACE}/containers", body("containers", "held"))
    path = f"{PLACE}/containers/held"
    paused = {
        "annotations": {"cloister.dev/paused": "true"},
        "finalizers": ["cloister.dev/hold", "backup.example/wait"],
    }
    verdict = await policed.patch(path, {"metadata": paused})
    assert verdict.accepted, verdict.message
    for value in ("false", None):
        change = {"metadata": {"annotations": {"cloister.dev/paused": value}}}
        assert_refused(await tenant.patch(path, change), "cloister.dev/paused")
    unheld = await tenant.patch(path, {"metadata": {"finalizers": ["backup.example/wait"]}})
    assert_refused(unheld, "may not remove cloister.dev/hold")
    replaced = body(
        "containers", "held", resourceVersion=verdict.body["metadata"]["resourceVersion"]
    )
    assert_refused(await tenant.put(path, replaced), "cloister.dev/paused")
    assert (await tenant.patch(path, {"spec": {"tag": "v1.1.0"}})).accepted
    let_go = {"annotations": {"cloister.dev/paused": None}, "finalizers": None}
    assert (await policed.patch(path, {"metadata": let_go})).accepted
    await tenant.delete(path)


async def test_the_facade_has_a_list_of_its_own(facade: ApiServer) -> None:
    stamps = {"cloister.dev/create-request": "x", "cloister.dev/asked-resources": "{}"}
    labels = {"cloister.dev/organization": "acme"}
    made = body("containers", "made", annotations=stamps, labels=labels)
    verdict = await facade.post(f"{PLACE}/containers", made, dryRun="All")
    assert verdict.accepted, verdict.message
    for change in (
        {"annotations": {"cloister.dev/paused": "true"}},
        {"annotations": {"cloister.dev/id": UID}},
        {"labels": {"cloister.dev/enclave": "x"}},
        {"finalizers": ["cloister.dev/hold"]},
    ):
        verdict = await facade.post(f"{PLACE}/containers", body("containers", "made", **change))
        assert_refused(verdict, "ValidatingAdmissionPolicy", next(iter(change)))
    claim = {
        "apiVersion": "cloister.dev/v1alpha1",
        "kind": "HostnameClaim",
        "metadata": {"name": "a.example.com", "annotations": {"cloister.dev/paused": "true"}},
        "spec": {"holder": {"namespace": "org-acme", "name": "web"}},
    }
    verdict = await facade.post(f"{OURS}/hostnameclaims", claim, dryRun="All")
    assert_refused(verdict, "cloister.dev/paused")


async def test_the_garbage_collector_goes_on_working(policed: ApiServer, tenant: ApiServer) -> None:
    """With the propagation policy Orphan the server adds a finalizer that the collector removes."""
    await tenant.post(f"{PLACE}/domains", body("domains", "orphaned"))
    path = f"{PLACE}/domains/orphaned"
    await policed.patch(path, {"metadata": {"finalizers": ["orphan"]}})
    collector = policed.impersonating(
        "system:serviceaccount:kube-system:generic-garbage-collector",
        "system:serviceaccounts:kube-system",
        "system:authenticated",
    )
    verdict = await collector.patch(path, {"metadata": {"finalizers": None}}, dryRun="All")
    assert verdict.accepted, verdict.message
    await collector.aclose()
    await policed.patch(path, {"metadata": {"finalizers": None}})
    await tenant.delete(path)


@pytest.mark.attack("metadata")
async def test_nothing_of_the_operators_owns_what_tenants_make(tenant: ApiServer) -> None:
    def owned(kind: str) -> dict[str, Any]:
        owner = {"apiVersion": "cloister.dev/v1alpha1", "kind": kind, "name": "a", "uid": UID}
        return body("containers", "owned", ownerReferences=[{**owner, "blockOwnerDeletion": True}])

    for kind in ("Enclave", "Organization", "Host", "HostnameClaim"):
        verdict = await tenant.post(f"{PLACE}/containers", owned(kind))
        assert_refused(verdict, f"may not make {kind} a the owner")
    verdict = await tenant.post(f"{PLACE}/containers", owned("Container"), dryRun="All")
    assert verdict.accepted, verdict.message


@pytest.mark.attack("port-forward")
@pytest.mark.parametrize("door", ["pods/web/portforward", "pods/web/proxy", "services/web/proxy"])
async def test_only_administrators_connect_through_the_cluster(
    policed: ApiServer, door: str
) -> None:
    stranger = policed.impersonating("stranger", "system:authenticated")
    path = f"/api/v1/namespaces/org-acme/{door}"
    verdict = await (stranger.post(path, None) if "port" in door else stranger.get(path))
    assert_refused(verdict, "is closed", "use the host name of the Container")
    admitted = await (policed.post(path, None) if "port" in door else policed.get(path))
    assert admitted.status != FORBIDDEN
    await stranger.aclose()


async def test_an_administrator_restores_identifiers_and_nobody_else(
    policed: ApiServer, tenant: ApiServer, facade: ApiServer
) -> None:
    await tenant.post(f"{PLACE}/domains", body("domains", "restored"))
    path = f"{PLACE}/domains/restored/status"
    restored = {"status": {"id": UID}}
    stranger = policed.impersonating("stranger", "system:authenticated")
    for somebody in (tenant, facade, stranger):
        assert (await somebody.patch(path, restored)).status == FORBIDDEN
    await stranger.aclose()
    seen = {"status": {"observedGeneration": 1}}
    assert_refused(await policed.patch(path, seen), "change spec instead")
    nonsense = await policed.patch(path, {"status": {"id": "x" * 36}})
    assert "id is a UUID in lowercase" in nonsense.message
    assert (await policed.patch(path, restored)).accepted
    for change in (f"{UID[:-1]}5", None):
        again = await policed.patch(path, {"status": {"id": change}})
        assert "id cannot be changed" in again.message
    # Until the operator has seen it, all that a backup has; then the identifier alone.
    assert (await policed.patch(path, {"status": {"verified": True}})).accepted
    operator = policed.impersonating(
        "system:serviceaccount:cloister-system:cloister-operator", "system:authenticated"
    )
    assert (await operator.patch(path, seen)).accepted
    await operator.aclose()
    assert_refused(
        await policed.patch(path, {"status": {"verified": False}}), "change spec instead"
    )
    await tenant.delete(f"{PLACE}/domains/restored")
