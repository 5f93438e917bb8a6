"""What whoever holds the token of the operator or of the facade tries, on a real API server.

The rights are those of `crds/manifests/roles`, the limits those of `crds/manifests/policies`.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from cloister_crds.installation import CONFIG_MAP_NAME
from cloister_operator.enclave.tenant import build_namespace, build_role_bindings
from tests.support.cluster.admission_policies import install_policies, remove_policies
from tests.support.cluster.api_server import ApiResponse, ApiServer
from tests.support.programs.published_settings import settings_manifest
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

SYSTEM = "cloister-system"
TENANT = "org-held"
CLAIMS = "/apis/cloister.dev/v1alpha1/hostnameclaims"
KINDS = f"/apis/cloister.dev/v1alpha1/namespaces/{TENANT}"
FORBIDDEN = 403
SECRET = "/api/v1/namespaces/{}/secrets"
DEVICE_CLAIMS = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"
POD = "/api/v1/namespaces/{}/pods"
BINDING = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings"
OWN = {"app.kubernetes.io/managed-by": "cloister"}
TABLE = Path(__file__).resolve().parents[3] / "docs" / "accounts.md"
TOKENS = ("kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token")
ACCOUNTS = ("operator", "api")


@dataclass(frozen=True, slots=True)
class Held:
    """Whose tokens are held."""

    admin: ApiServer
    """Cluster administrator."""
    operator: ApiServer
    """The operator's account."""
    api: ApiServer
    """The facade's account."""

    def account(self, name: str) -> ApiServer:
        """Return an account by its name."""
        return self.operator if name == "operator" else self.api


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def held(guarded: Path) -> AsyncIterator[Held]:
    """Install the policies, and let the operator's account make an organization's namespace."""
    admin = ApiServer.administrator(guarded)
    found = Held(
        admin,
        admin.bearer(await admin.token(SYSTEM, "cloister-operator")),
        admin.bearer(await admin.token(SYSTEM, "cloister-api")),
    )
    try:
        await install_policies(admin)
        await until(lambda: limited(found), what="the policies work")
        made = await found.operator.post("/api/v1/namespaces", build_namespace("held", TENANT))
        assert made.accepted, made.message
        await admin.token(TENANT, "other")
        for body in build_role_bindings("held", TENANT, operator_namespace=SYSTEM):
            bound = await found.operator.post(BINDING.format(TENANT), body)
            assert bound.accepted, bound.message
        await until(lambda: bound_to(found), what="the authorizer knows the RoleBindings")
        yield found
    finally:
        await admin.delete(f"/api/v1/namespaces/{TENANT}")
        await remove_policies(admin)
        for one in (found.operator, found.api, admin):
            await one.aclose()


async def limited(held: Held) -> bool:
    """Return whether the policies of both accounts refuse something."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "probe"}}
    paused = claim("probe.example", **{"cloister.dev/paused": "true"})
    bad = binding("org-nobody", "cloister-api-organization", "cloister-api")
    verdicts = [
        await held.operator.post("/api/v1/namespaces", space, dryRun="All"),
        await held.operator.post(BINDING.format("default"), bad, dryRun="All"),
        await held.api.post(CLAIMS, paused, dryRun="All"),
        await held.admin.post(SECRET.format("org-acme"), secret("a", TOKENS[1]), dryRun="All"),
    ]
    facade = await held.api.post(SECRET.format("org-acme"), secret("a"), dryRun="All")
    by_policy = "'cloister-facade'" in facade.message
    return by_policy and all(each.status == FORBIDDEN for each in verdicts)


async def bound_to(held: Held) -> bool:
    """Return whether both accounts may do their work in the organization's namespace."""
    place = SECRET.format(TENANT)
    verdicts = [
        await held.operator.post(place, secret("a", **ENCLAVES), dryRun="All"),
        await held.api.post(place, secret("a", **VALUES), dryRun="All"),
    ]
    return all(each.accepted for each in verdicts)


ENCLAVES = {**OWN, "cloister.dev/enclave": "a"}
VALUES = {**OWN, "cloister.dev/value-of": "secret"}


def secret(name: str, kind: str = "Opaque", **labels: str) -> dict[str, Any]:
    """Build a core Secret; those that hold a token are of the operator's account."""
    metadata: dict[str, Any] = {"name": name, "labels": labels}
    body = {"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": metadata}
    if kind == TOKENS[0]:
        metadata["annotations"] = {"kubernetes.io/service-account.name": "cloister-operator"}
    return body


def claim(name: str, **annotations: str) -> dict[str, Any]:
    """Build a HostnameClaim."""
    return {
        "apiVersion": "cloister.dev/v1alpha1",
        "kind": "HostnameClaim",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"holder": {"namespace": TENANT, "name": "web"}},
    }


def binding(name: str, role: str, account: str) -> dict[str, Any]:
    """Build a RoleBinding of an account of Cloister."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": SYSTEM}],
    }


def pod() -> dict[str, Any]:
    """Build a Pod of an enclave, as far as the roles look at it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "labels": ENCLAVES},
        "spec": {"containers": [{"name": "a", "image": "registry.example.com/a:1"}]},
    }


def assert_denied(verdict: ApiResponse, *words: str) -> None:
    """Check that a request was refused, and that the refusal says these words."""
    assert verdict.status == FORBIDDEN, verdict.body
    for word in words:
        assert word in verdict.message, verdict.message


@pytest.mark.parametrize("kind", TOKENS)
@pytest.mark.parametrize("account", ACCOUNTS)
async def test_no_account_makes_a_credential_of_the_cluster(
    held: Held, account: str, kind: str
) -> None:
    for place in ("kube-system", SYSTEM, TENANT):
        body = secret("steal", kind, **(VALUES if account == "api" else ENCLAVES))
        verdict = await held.account(account).post(SECRET.format(place), body)
        assert_denied(verdict)
    forged = secret("steal", kind, **VALUES)
    assert_denied(await held.admin.post(SECRET.format(TENANT), forged), "credential of the cluster")


async def test_tokens_are_refused_even_where_an_account_may_make_every_secret(held: Held) -> None:
    everything = binding("everything", "cluster-admin", "cloister-api")
    made = await held.admin.post(BINDING.format(SYSTEM), everything)
    assert made.accepted, made.message
    place = SECRET.format(SYSTEM)

    async def permitted() -> bool:
        return (await held.api.get(place)).accepted

    try:
        await until(permitted, what="the authorizer knows the RoleBinding")
        for kind in TOKENS:
            verdict = await held.api.post(place, secret("steal", kind, **VALUES))
            assert_denied(verdict, "ValidatingAdmissionPolicy")
        verdict = await held.api.post(place, secret("steal", **VALUES))
        assert_denied(verdict, "only in the namespaces of organizations")
    finally:
        await held.admin.delete(f"{BINDING.format(SYSTEM)}/everything")


@pytest.mark.parametrize("account", ACCOUNTS)
async def test_no_account_reads_or_writes_secrets_of_others(held: Held, account: str) -> None:
    one = held.account(account)
    for place in ("kube-system", SYSTEM, "default"):
        where = SECRET.format(place)
        for verdict in (
            await one.get(where),
            await one.get(f"{where}/any"),
            await one.post(where, secret("a", **VALUES)),
            await one.delete(f"{where}/any"),
            await one.get(f"/api/v1/namespaces/{place}/configmaps/any"),
            await one.post(POD.format(place), pod()),
        ):
            assert_denied(verdict)
    assert_denied(await one.get("/api/v1/secrets"))


async def test_the_settings_that_are_published_are_the_operators_to_write(held: Held) -> None:
    place = f"/api/v1/namespaces/{SYSTEM}/configmaps"
    body = settings_manifest("containers.test")
    await held.operator.apply(body, f"{place}/{CONFIG_MAP_NAME}")
    only = {"fieldSelector": f"metadata.name={CONFIG_MAP_NAME}"}
    assert (await held.api.get(place, **only)).accepted
    assert_denied(await held.api.get(place))
    assert_denied(await held.api.patch(f"{place}/{CONFIG_MAP_NAME}", {"data": None}))
    assert_denied(await held.operator.post(place, {**body, "metadata": {"name": "another"}}))
    assert_denied(await held.operator.delete(f"{place}/{CONFIG_MAP_NAME}"))


@pytest.mark.parametrize("account", ACCOUNTS)
async def test_no_account_gives_itself_rights(held: Held, account: str) -> None:
    one = held.account(account)
    label = {"metadata": {"labels": {"cloister.dev/organization": "x"}}}
    assert_denied(await one.patch("/api/v1/namespaces/kube-system", label))
    for place, role in (
        ("kube-system", f"cloister-{account}-organization"),
        (TENANT, "cluster-admin"),
        (TENANT, "cloister-operator-organization"),
    ):
        name = "other" if place == TENANT else role
        body = binding(name, role, f"cloister-{account}")
        assert_denied(await one.post(BINDING.format(place), body))


async def test_the_operator_binds_its_two_roles_to_nobody_else(held: Held) -> None:
    role = "cloister-operator-organization"
    await held.admin.delete(f"{BINDING.format(TENANT)}/cloister-api-organization")
    given = binding("cloister-api-organization", "cloister-api-organization", "cloister-operator")
    place = BINDING.format(TENANT)
    assert_denied(await held.operator.post(place, given), "and nothing else")
    stranger = {"kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io"}
    changed = await held.operator.patch(f"{place}/{role}", {"subjects": [stranger]})
    assert_denied(changed, "and nothing else")
    again = binding("cloister-api-organization", "cloister-api-organization", "cloister-api")
    assert (await held.operator.post(place, again)).accepted
    await until(lambda: bound_to(held), what="the authorizer knows the RoleBindings")


def device_claim(*requests: dict[str, Any], **labels: str) -> dict[str, Any]:
    """Build a ResourceClaim of an enclave."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "a-gpus-0", "labels": labels},
        "spec": {"devices": {"requests": [{"name": "gpus", **each} for each in requests]}},
    }


async def test_the_operator_claims_devices_for_an_enclave_alone(held: Held) -> None:
    gpu = {"deviceClassName": "gpu.example.com"}
    place = DEVICE_CLAIMS.format(TENANT)
    # Without this label the API server refuses such a claim by itself.
    admin_access = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    assert (await held.admin.patch(f"/api/v1/namespaces/{TENANT}", admin_access)).accepted
    every = device_claim({"exactly": {**gpu, "adminAccess": True}}, **ENCLAVES)
    assert_denied(await held.operator.post(place, every), "another one may have")
    nobodys = device_claim({"exactly": gpu}, **OWN)
    assert_denied(await held.operator.post(place, nobodys), "ResourceClaims of enclaves")
    good = device_claim({"exactly": gpu}, **ENCLAVES)
    made = await held.operator.post(place, good, dryRun="All")
    assert made.accepted, made.message
    assert_denied(await held.admin.post(place, good), "change the Container instead")
    elsewhere = await held.operator.post(DEVICE_CLAIMS.format(SYSTEM), good)
    assert elsewhere.status == FORBIDDEN


async def test_the_facade_claims_host_names(held: Held) -> None:
    assert (await held.api.post(CLAIMS, claim("web.example"), dryRun="All")).accepted


async def test_the_facade_changes_only_what_is_its_own(held: Held) -> None:
    place = SECRET.format(TENANT)
    assert (await held.admin.post(place, secret("theirs"))).accepted
    assert_denied(await held.api.delete(f"{place}/theirs"), "cloister.dev/value-of")
    marked = {"metadata": {"labels": VALUES}}
    assert_denied(await held.api.patch(f"{place}/theirs", marked), "cloister.dev/value-of")
    login = secret("login", "kubernetes.io/basic-auth", **VALUES) | {
        "stringData": {"username": "a"}
    }
    assert_denied(await held.api.post(place, login), "types")
    spec = {"name": "web", "repo": "a/b", "tag": "v1"}
    body = {
        "apiVersion": "cloister.dev/v1alpha1",
        "kind": "Container",
        "metadata": {"name": "web", "annotations": {"cloister.dev/paused": "true"}},
        "spec": spec,
    }
    assert_denied(await held.api.post(f"{KINDS}/containers", body), "cloister.dev/paused")
    body["metadata"] = {"name": "web", "finalizers": ["cloister.dev/metering"]}
    assert_denied(await held.api.post(f"{KINDS}/containers", body), "finalizers")
    body["metadata"] = {"name": "web", "annotations": {"cloister.dev/create-request": "x"}}
    made = await held.api.post(f"{KINDS}/containers", body, dryRun="All")
    assert made.accepted, made.message
    elsewhere = "/apis/cloister.dev/v1alpha1/namespaces/default/containers"
    assert_denied(await held.api.post(elsewhere, body), "only in the namespaces of organizations")


async def test_the_facade_writes_billing_and_no_other_status(held: Held) -> None:
    path = "/apis/cloister.dev/v1alpha1/organizations/paying"
    body = {
        "apiVersion": "cloister.dev/v1alpha1",
        "kind": "Organization",
        "metadata": {"name": "paying"},
        "spec": {"namespace": "org-paying"},
    }
    await held.admin.apply(body, path)
    counts = {"status": {"counts": {"containers": 3}}}
    assert_denied(await held.api.patch(f"{path}/status", counts), "only billing")
    paid = {"status": {"billing": {"containerSubscription": True}}}
    written = await held.api.patch(f"{path}/status", paid)
    assert written.accepted, written.message
    assert (await held.admin.delete(path)).accepted


async def test_the_facade_changes_the_members_of_an_organization_and_nothing_else(
    held: Held,
) -> None:
    path = "/apis/cloister.dev/v1alpha1/organizations/staffed"
    ada = {"user": "ada@example.test", "role": "Admin"}
    bob = {"user": "bob@example.test", "role": "Member"}
    body = {
        "apiVersion": "cloister.dev/v1alpha1",
        "kind": "Organization",
        "metadata": {"name": "staffed", "labels": {"team": "a"}},
        "spec": {"namespace": "org-staffed", "members": [ada], "limits": {"containers": 3}},
    }
    await held.admin.apply(body, path)
    try:
        joined = await held.api.patch(path, {"spec": {"members": [ada, bob]}})
        assert joined.accepted, joined.message
        found = joined.body["spec"]
        assert found["members"] == [ada, bob]
        for patch in (
            {"spec": {"limits": {"containers": 4}}},
            {"spec": {"limits": None, "members": [ada]}},
            {"spec": {"entitlements": {"gpu": True}}},
            {"spec": {"billing": {"containerSubscription": True}}},
            {"metadata": {"labels": {"team": None}}},
            {"metadata": {"annotations": {"example.com/note": "b"}}},
        ):
            assert_denied(await held.api.patch(path, patch), "the members and nothing else")
        finalizer = {"metadata": {"finalizers": ["cloister.dev/namespace"]}}
        assert_denied(await held.api.patch(path, finalizer), "finalizers")
        for members in ([bob], [], None):
            patch = {"spec": {"members": members}}
            assert_denied(await held.api.patch(path, patch), "last administrator")
        assert_denied(await held.api.delete(path))
        assert_denied(await held.api.post(path.rpartition("/")[0], body))
        assert (await held.admin.get(path)).body["spec"] == found
        left = await held.api.patch(path, {"spec": {"members": [ada]}})
        assert left.accepted, left.message
    finally:
        assert (await held.admin.delete(path)).accepted


Rights = set[tuple[str, str, str]]
"""Resource as ``plural.group``, verb, and object name; empty = every object."""


async def rights(one: ApiServer, namespace: str) -> Rights:
    """Ask the API server what an account may do in a namespace, and of the whole cluster."""
    verdict = await one.post(
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": namespace},
        },
    )
    assert verdict.accepted, verdict.message
    status = verdict.body["status"]
    assert not status["incomplete"], status
    return {
        (f"{plural}.{group}" if group else plural, verb, name)
        for rule in status["resourceRules"]
        for group in rule.get("apiGroups") or ()
        for plural in rule.get("resources") or ()
        for verb in rule["verbs"]
        for name in rule.get("resourceNames") or ("",)
        # What Kubernetes permits every account: to ask about itself, and from 1.37 on to read
        # certificates of authorities, which are public.
        if not plural.startswith(("self", "clustertrustbundles"))
    }


def table(account: str, place: str) -> Rights:
    """Read the page: what an account may do in a place."""
    found: Rights = set()
    for line in TABLE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 4 or cells[:2] != [f"`cloister-{account}`", place]:
            continue
        verbs, _, names = cells[3].partition(" of ")
        for resource in cells[2].split(", "):
            for verb in verbs.split(", "):
                for name in names.split(", "):
                    found.add((resource.strip("`"), verb.strip("`"), name.strip("`")))
    return found


@pytest.mark.parametrize("account", ACCOUNTS)
async def test_the_page_says_what_whoever_holds_an_account_may_do(held: Held, account: str) -> None:
    one = held.account(account)
    everywhere = await rights(one, "default")
    assert everywhere == table(account, "everywhere")
    assert await rights(one, "kube-system") == everywhere
    for place, name in (
        (TENANT, "organizations"),
        (SYSTEM, f"`{SYSTEM}`"),
        ("kube-node-lease", "`kube-node-lease`"),
    ):
        assert await rights(one, place) - everywhere == table(account, name), place
