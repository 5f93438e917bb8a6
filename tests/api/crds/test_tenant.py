"""What a tenant with kubectl can do in an organization's namespace, and what nobody can.

Each identity is a service account of its own with a real token. The trespasser holds every right
that RBAC can give in the namespace; what keeps it out is the admission policies alone.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from cloister_crds.names import token_audience
from tests.api.crds.test_pods_of_enclaves import pod as enclave_pod
from tests.support.cluster.admission_policies import install_policies, remove_policies
from tests.support.cluster.api_server import ApiResponse, ApiServer
from tests.support.cluster.pod_tokens import token_path, token_request
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

CORE = "/api/v1/namespaces/org-acme"
OURS = "/apis/cloister.dev/v1alpha1/namespaces/org-acme"
OTHERS = "/apis/cloister.dev/v1alpha1/namespaces/org-other"
RBAC = "rbac.authorization.k8s.io"
FORBIDDEN = 403
NOT_FOUND = 404
KUBELET_PATHS = "/ /pods /metrics/resource /run/org-acme/web/web /exec/a/b/c"


@dataclass(frozen=True, slots=True)
class People:
    """Everyone who knocks."""

    admin: ApiServer
    """Cluster administrator, with a certificate."""
    tenant: ApiServer
    """Account with cloister-tenant-edit in org-acme."""
    developer: ApiServer
    """Account with cloister-tenant-deploy in org-acme."""
    viewer: ApiServer
    """Account with cloister-tenant-view in org-acme."""
    trespasser: ApiServer
    """Account with every right in org-acme."""
    operator: ApiServer
    """The operator's account."""
    api: ApiServer
    """The facade's account."""


async def bind(server: ApiServer, account: str, role: str) -> None:
    """Bind a ClusterRole to an account in org-acme."""
    await server.apply(
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": account, "namespace": "org-acme"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "org-acme"}],
        },
        f"/apis/{RBAC}/v1/namespaces/org-acme/rolebindings/{account}",
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def people(guarded: Path) -> AsyncIterator[People]:
    """Install everything and answer who is there."""
    admin = ApiServer.administrator(guarded)
    for name in ("org-acme", "org-other"):
        labels = {"cloister.dev/organization": name.removeprefix("org-")}
        metadata = {"name": name, "labels": labels}
        await admin.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata},
            f"/api/v1/namespaces/{name}",
        )
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        await admin.apply(account, f"/api/v1/namespaces/{name}/serviceaccounts/default")
    bound = {
        "tenant": "cloister-tenant-edit",
        "developer": "cloister-tenant-deploy",
        "viewer": "cloister-tenant-view",
        "trespasser": "cluster-admin",
    }
    for person, role in bound.items():
        await bind(admin, person, role)
    accounts = {person: ("org-acme", person) for person in bound}
    accounts |= {each: ("cloister-system", f"cloister-{each}") for each in ("operator", "api")}
    doors = {each: admin.bearer(await admin.token(*of)) for each, of in accounts.items()}
    people = People(admin=admin, **doors)
    try:
        await install_policies(admin)
        await _until_the_policies_work(people)
        yield people
    finally:
        await remove_policies(admin)
        for each in fields(people):
            await getattr(people, each.name).aclose()


async def _until_the_policies_work(people: People) -> None:
    """Wait until each policy refuses something and the operator is known."""
    await people.admin.apply(container("probe"), f"{OURS}/containers/probe")

    async def refused() -> bool:
        status = {"status": {"phase": "ready"}}
        forged = "a Pod", "a snapshot Secret", "the token of an account", "the token of an enclave"
        verdicts = [await people.trespasser.post(*FORGED[each], dryRun="All") for each in forged]
        status_path = f"{OURS}/containers/probe/status"
        verdicts.append(await people.trespasser.patch(status_path, status, dryRun="All"))
        working = await people.operator.post(f"{CORE}/pods", pod("probe"), dryRun="All")
        by_policy = ["ValidatingAdmissionPolicy" in verdict.message for verdict in verdicts]
        return working.accepted and all(by_policy)

    await until(refused, what="the admission policies work")


def pod(name: str) -> dict[str, Any]:
    body = enclave_pod()
    body["metadata"] = {"name": name, "labels": {"cloister.dev/enclave": name}}
    return body


def service(name: str) -> dict[str, Any]:
    spec = {"selector": {"app": "a"}, "ports": [{"port": 443}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def snapshot(name: str) -> dict[str, Any]:
    labels = {"cloister.dev/enclave": "web-r1-1"}
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"A": "1"}}


def ours(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    head = {"apiVersion": "cloister.dev/v1alpha1", "kind": kind}
    return {**head, "metadata": {"name": name}, "spec": spec}


def container(name: str) -> dict[str, Any]:
    return ours("Container", name, {"repo": "acme/web", "tag": "v1.0.0"})


def enclave(name: str) -> dict[str, Any]:
    spec = {
        "container": {"name": "web", "uid": "1"},
        "request": {"repo": "acme/web", "tag": "v1.0.0"},
        "revision": "r1",
        "attempt": 1,
        "repo": "acme/web",
        "tag": "v1.0.0",
        "commit": "0" * 40,
        "configDigest": "sha256:0",
        "configFile": "service-config.yml",
        "summary": {"cpus": 2, "memoryMB": 8192},
        "host": "small",
    }
    return ours("Enclave", name, spec)


def core(kind: str, api: str, name: str, **rest: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, **rest}


TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "a"}},
    "spec": {"containers": [{"name": "a", "image": "registry.example.com/a:1"}]},
}
FORGED: dict[str, tuple[str, dict[str, Any]]] = {
    "a Pod": (f"{CORE}/pods", pod("forged")),
    "an Enclave": (f"{OURS}/enclaves", enclave("forged")),
    "a Service": (f"{CORE}/services", service("forged")),
    "a snapshot Secret": (f"{CORE}/secrets", snapshot("forged")),
    "a snapshot ConfigMap": (
        f"{CORE}/configmaps",
        {**snapshot("forged"), "kind": "ConfigMap", "stringData": None},
    ),
    "a Secret that an Enclave seems to own": (
        f"{CORE}/secrets",
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": "forged",
                "ownerReferences": [
                    {
                        "apiVersion": "cloister.dev/v1alpha1",
                        "kind": "Enclave",
                        "name": "web-r1-1",
                        "uid": "00000000-0000-0000-0000-000000000000",
                    }
                ],
            },
        },
    ),
    "the token of an account": (
        f"{CORE}/secrets",
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/service-account-token",
            "metadata": {
                "name": "forged",
                "annotations": {"kubernetes.io/service-account.name": "default"},
            },
        },
    ),
    "the token of an enclave": (token_path("org-acme"), token_request(token_audience("1"), "", "")),
    "a core Deployment": (
        "/apis/apps/v1/namespaces/org-acme/deployments",
        core(
            "Deployment",
            "apps/v1",
            "forged",
            spec={"selector": {"matchLabels": {"app": "a"}}, "template": TEMPLATE},
        ),
    ),
    "a Job": (
        "/apis/batch/v1/namespaces/org-acme/jobs",
        core(
            "Job",
            "batch/v1",
            "forged",
            spec={"template": {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}},
        ),
    ),
    "a ReplicationController": (
        f"{CORE}/replicationcontrollers",
        core("ReplicationController", "v1", "forged", spec={"template": TEMPLATE}),
    ),
    "an EndpointSlice": (
        "/apis/discovery.k8s.io/v1/namespaces/org-acme/endpointslices",
        core("EndpointSlice", "discovery.k8s.io/v1", "forged", addressType="IPv4", endpoints=[]),
    ),
    "a NetworkPolicy": (
        "/apis/networking.k8s.io/v1/namespaces/org-acme/networkpolicies",
        core("NetworkPolicy", "networking.k8s.io/v1", "forged", spec={"podSelector": {}}),
    ),
    "a PodDisruptionBudget": (
        "/apis/policy/v1/namespaces/org-acme/poddisruptionbudgets",
        core("PodDisruptionBudget", "policy/v1", "forged", spec={"minAvailable": 1}),
    ),
}
"""What a trespasser would make, and where."""


def assert_refused(verdict: ApiResponse, *words: str) -> None:
    assert verdict.status == FORBIDDEN, verdict
    for word in words:
        assert word in verdict.message


@pytest.mark.attack("forged-objects")
@pytest.mark.parametrize("what", FORGED)
async def test_nothing_of_an_enclave_can_be_forged(people: People, what: str) -> None:
    path, body = FORGED[what]
    body = {key: value for key, value in body.items() if value is not None}
    assert_refused(await people.trespasser.post(path, body, dryRun="All"), "ValidatingAdmission")
    tenant = await people.tenant.post(path, body, dryRun="All")
    assert tenant.status == FORBIDDEN


@pytest.mark.parametrize(
    "what",
    [
        "a Pod",
        "an Enclave",
        "a Service",
        "a snapshot Secret",
        "a snapshot ConfigMap",
        "a NetworkPolicy",
        "a PodDisruptionBudget",
    ],
)
async def test_the_operator_makes_what_others_cannot(people: People, what: str) -> None:
    path, body = FORGED[what]
    body = {key: value for key, value in body.items() if value is not None}
    verdict = await people.operator.post(path, body, dryRun="All")
    assert verdict.accepted, verdict.message


async def test_the_refusal_says_what_to_do(people: People) -> None:
    verdict = await people.trespasser.post(f"{CORE}/pods", pod("forged"))
    assert_refused(
        verdict,
        "system:serviceaccount:org-acme:trespasser may not create pods",
        "change the Container instead",
    )


@pytest.mark.attack("enter-enclave")
@pytest.mark.parametrize("subresource", ["exec", "attach"])
async def test_nobody_enters_an_enclave(people: People, subresource: str) -> None:
    made = await people.operator.post(f"{CORE}/pods", pod(f"entered-{subresource}"))
    assert made.accepted, made.message
    path = f"{CORE}/pods/entered-{subresource}"
    for somebody in (people.trespasser, people.admin):
        verdict = await somebody.post(f"{path}/{subresource}", None, command="true", stdout="true")
        assert_refused(verdict, f"pods/{subresource} is closed", "read their logs")
    assert (await people.tenant.post(f"{path}/{subresource}", None)).status == FORBIDDEN
    await people.operator.delete(path, gracePeriodSeconds="0")


@pytest.mark.attack("enter-enclave")
async def test_no_container_is_added_beside(people: People) -> None:
    await people.operator.post(f"{CORE}/pods", pod("joined"))
    beside = {"spec": {"ephemeralContainers": [{"name": "b", "image": "b"}]}}
    path = f"{CORE}/pods/joined"
    for somebody in (people.trespasser, people.admin):
        verdict = await somebody.patch(f"{path}/ephemeralcontainers", beside, dryRun="All")
        assert_refused(verdict, "pods/ephemeralcontainers is closed")
    await people.operator.delete(path, gracePeriodSeconds="0")


async def test_exec_stays_open_where_no_organization_lives(people: People) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    await people.admin.apply(account, "/api/v1/namespaces/default/serviceaccounts/default")
    await people.admin.post("/api/v1/namespaces/default/pods", pod("open"))
    path = "/api/v1/namespaces/default/pods/open"
    verdict = await people.admin.post(f"{path}/exec", None, command="true", stdout="true")
    # There is not a node to connect to; what counts is that nobody refused.
    assert verdict.status != FORBIDDEN
    assert "closed" not in verdict.message
    await people.admin.delete(path, gracePeriodSeconds="0")


@pytest.mark.attack("own-status")
async def test_status_is_the_operators(people: People) -> None:
    await people.tenant.post(f"{OURS}/containers", container("judged"))
    path = f"{OURS}/containers/judged/status"
    change = {"status": {"observedGeneration": 1, "phase": "ready"}}
    assert_refused(await people.trespasser.patch(path, change), "change spec instead")
    assert (await people.tenant.patch(path, change)).status == FORBIDDEN
    assert (await people.api.patch(path, change)).status == FORBIDDEN
    verdict = await people.operator.patch(path, change)
    assert verdict.accepted, verdict.message
    # Before that it would be a restore of a backup.
    again = {"status": {"observedGeneration": 1, "phase": "stopped"}}
    assert (await people.admin.patch(path, again)).status == FORBIDDEN
    await people.tenant.delete(f"{OURS}/containers/judged")


@pytest.mark.attack("own-status")
async def test_a_status_in_a_create_counts_for_nothing(people: People) -> None:
    body = {**container("boasting"), "status": {"phase": "ready", "observedGeneration": 1}}
    verdict = await people.tenant.post(f"{OURS}/containers", body)
    assert verdict.body["status"] == {"observedGeneration": -1}
    await people.tenant.delete(f"{OURS}/containers/boasting")


async def test_the_facade_changes_an_enclaves_finalizers_and_nothing_else(people: People) -> None:
    metered = enclave("metered")
    metered["metadata"]["finalizers"] = ["cloister.dev/metering"]
    made = await people.operator.post(f"{OURS}/enclaves", metered)
    assert made.accepted, made.message
    path = f"{OURS}/enclaves/metered"
    for part in ("labels", "annotations"):
        changed = await people.api.patch(path, {"metadata": {part: {"a": "b"}}})
        assert_refused(changed, "may not update")
    taken = await people.api.patch(path, {"metadata": {"finalizers": None}})
    assert taken.accepted, taken.message
    assert (await people.api.delete(path)).status == FORBIDDEN
    assert (await people.operator.delete(path, gracePeriodSeconds="0")).accepted


async def test_no_account_enters_a_pod_through_its_kubelet(people: People) -> None:
    """No policy could refuse this where a kubelet is asked directly: there must be no right to."""
    for account in (people.api, people.operator):
        for path in ("", *KUBELET_PATHS.split()):
            assert_refused(await account.get(f"/api/v1/nodes/nowhere/proxy{path}"), "nodes/proxy")
    assert (await people.admin.get("/api/v1/nodes/nowhere/proxy/pods")).status == NOT_FOUND


async def test_the_system_goes_on_working(people: People) -> None:
    admin = people.admin
    made = await people.operator.post(f"{CORE}/pods", pod("scheduled"))
    assert made.accepted, made.message
    scheduler = admin.impersonating("system:kube-scheduler")
    binding = core("Binding", "v1", "scheduled", target={"kind": "Node", "name": "node-1"})
    bound = await scheduler.post(f"{CORE}/pods/scheduled/binding", binding)
    assert bound.accepted, bound.message
    controller = admin.impersonating(
        "system:serviceaccount:kube-system:endpointslice-controller",
        "system:serviceaccounts",
        "system:serviceaccounts:kube-system",
        "system:authenticated",
    )
    path, body = FORGED["an EndpointSlice"]
    sliced = await controller.post(path, body, dryRun="All")
    assert sliced.accepted, sliced.message
    collector = admin.impersonating(
        "system:serviceaccount:kube-system:generic-garbage-collector",
        "system:serviceaccounts",
        "system:serviceaccounts:kube-system",
        "system:authenticated",
    )
    collected = await collector.delete(f"{CORE}/pods/scheduled", gracePeriodSeconds="0")
    assert collected.accepted, collected.message
    for somebody in (scheduler, controller, collector):
        await somebody.aclose()


async def test_an_administrator_may_delete_a_pod_by_hand_and_a_trespasser_not(
    people: People,
) -> None:
    await people.operator.post(f"{CORE}/pods", pod("deleted"))
    path = f"{CORE}/pods/deleted"
    assert_refused(await people.trespasser.delete(path), "may not delete pods")
    assert (await people.admin.delete(path)).accepted


async def test_claims_are_not_for_tenants(people: People) -> None:
    claims = "/apis/cloister.dev/v1alpha1/hostnameclaims"
    claim = {
        "apiVersion": "cloister.dev/v1alpha1",
        "kind": "HostnameClaim",
        "metadata": {"name": "web.acme.example.com"},
        "spec": {"holder": {"namespace": "org-acme", "name": "web"}},
    }
    for somebody in (people.tenant, people.viewer, people.trespasser):
        assert (await somebody.get(claims)).status == FORBIDDEN
        assert (await somebody.get(f"{claims}/web.acme.example.com")).status == FORBIDDEN
        assert (await somebody.post(claims, claim)).status == FORBIDDEN
    made = await people.api.post(claims, claim)
    assert made.accepted, made.message
    assert (await people.api.delete(f"{claims}/web.acme.example.com")).status == FORBIDDEN
    assert (await people.operator.delete(f"{claims}/web.acme.example.com")).accepted


@pytest.mark.attack("other-namespace")
async def test_another_organization_is_out_of_reach(people: People) -> None:
    for somebody in (people.tenant, people.viewer, people.trespasser):
        assert (await somebody.get(f"{OTHERS}/containers")).status == FORBIDDEN
        assert (await somebody.post(f"{OTHERS}/containers", container("x"))).status == FORBIDDEN
        assert (await somebody.get("/api/v1/namespaces/org-other/secrets")).status == FORBIDDEN
        assert (await somebody.get("/apis/cloister.dev/v1alpha1/containers")).status == FORBIDDEN


async def test_a_tenant_works_with_its_own_kinds(people: People) -> None:
    tenant = people.tenant
    made = await tenant.post(f"{OURS}/containers", container("web"))
    assert made.accepted, made.message
    edited = await tenant.patch(f"{OURS}/containers/web", {"spec": {"tag": "v1.1.0"}})
    assert edited.body["spec"]["tag"] == "v1.1.0"
    for plural, body in (
        ("secrets", ours("Secret", "key", {"name": "KEY", "secretRef": {"name": "key"}})),
        ("sshkeys", ours("SSHKey", "me", {"publicKey": "ssh-ed25519 AAAA me"})),
        ("domains", ours("Domain", "app", {"domain": "app.example.com"})),
        ("deployments", ours("Deployment", "web", {"repo": "acme/web"})),
        (
            "registrycredentials",
            ours("RegistryCredential", "ghcr", {"registry": "ghcr", "secretRef": {"name": "g"}}),
        ),
    ):
        verdict = await tenant.post(f"{OURS}/{plural}", body)
        assert verdict.accepted, verdict.message
        assert (await tenant.delete(f"{OURS}/{plural}/{body['metadata']['name']}")).accepted
    assert (await tenant.get(f"{OURS}/enclaves")).accepted
    assert (await tenant.delete(f"{OURS}/containers/web")).accepted


async def test_a_tenant_keeps_its_own_secrets_and_reads_logs(people: People) -> None:
    value = core("Secret", "v1", "key", stringData={"value": "1"})
    assert (await people.tenant.post(f"{CORE}/secrets", value)).accepted
    assert (await people.tenant.get(f"{CORE}/secrets/key")).accepted
    assert (await people.viewer.get(f"{CORE}/secrets/key")).status == FORBIDDEN
    changed = await people.tenant.patch(f"{CORE}/secrets/key", {"stringData": {"value": "2"}})
    assert changed.accepted, changed.message
    assert (await people.tenant.delete(f"{CORE}/secrets/key")).accepted
    await people.operator.post(f"{CORE}/pods", pod("told"))
    for somebody in (people.tenant, people.viewer):
        assert (await somebody.get(f"{CORE}/pods/told")).accepted
        # Without a node the log is empty or cannot be had; it is not forbidden.
        assert (await somebody.get(f"{CORE}/pods/told/log")).status != FORBIDDEN
    await people.operator.delete(f"{CORE}/pods/told", gracePeriodSeconds="0")


async def test_a_viewer_only_looks(people: People) -> None:
    assert (await people.viewer.get(f"{OURS}/containers")).accepted
    assert (await people.viewer.post(f"{OURS}/containers", container("x"))).status == FORBIDDEN


async def test_the_operator_only_ends_organizations_and_their_namespaces(people: People) -> None:
    path, guard = "/apis/cloister.dev/v1alpha1/organizations/led", "cloister.dev/namespace"
    await people.admin.apply(ours("Organization", "led", {"namespace": "org-led"}), path)
    change = {"spec": {"limits": {"containers": 1000}}, "metadata": {"finalizers": [guard]}}
    assert_refused(
        await people.operator.patch(path, change), f"only the finalizer {guard} and status"
    )
    del change["spec"]
    assert (await people.operator.patch(path, change)).accepted
    space, labels = "/api/v1/namespaces/led", {"cloister.dev/organization": "led"}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "led", "labels": labels}}
    await people.admin.apply(body, space)
    assert_refused(await people.operator.delete(space), "that it made for an Organization")
    assert (await people.operator.patch(path, {"metadata": {"finalizers": []}})).accepted
    assert (await people.admin.delete(path)).accepted
