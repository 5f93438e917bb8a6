"""The roles of the two programs: enough for what they do, and no more where it matters.

The API server itself says who may do what (SubjectAccessReview).
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from cloister_clients.kube.kinds import ENDPOINT_SLICE, NODE, TLS_ROUTES, KindRef, of
from cloister_crds.kinds import (
    KINDS,
    Container,
    Deployment,
    Domain,
    Enclave,
    Host,
    HostnameClaim,
    Organization,
    RegistryCredential,
    Secret,
    SSHKey,
)
from cloister_crds.kinds.meta import Resource
from cloister_operator.cache.projections import watched_kinds
from tests.support.cluster.api_server import ApiServer
from tests.support.waiting import until

OPERATOR = "system:serviceaccount:cloister-system:cloister-operator"
API = "system:serviceaccount:cloister-system:cloister-api"

May = Callable[[str, str, str], Awaitable[bool]]
"""User, verb and ``group/plural`` or ``group/plural/subresource``: allowed in org-acme?"""


@pytest.fixture
async def may(guarded: Path) -> AsyncIterator[May]:
    """Ask the API server who may do what."""
    server = ApiServer.administrator(guarded)

    async def ask(user: str, verb: str, place: str) -> bool:
        group, plural, *rest = place.split("/")
        attributes = {
            "namespace": "org-acme",
            "verb": verb,
            "group": group,
            "resource": plural,
            "subresource": rest[0] if rest else "",
        }
        groups = ["system:authenticated", "system:serviceaccounts"]
        verdict = await server.post(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {"user": user, "groups": groups, "resourceAttributes": attributes},
            },
        )
        assert verdict.accepted, verdict.message
        return bool(verdict.body["status"]["allowed"])

    async def known() -> bool:
        asked = (
            (OPERATOR, "list", "/pods"),
            (API, "list", "cloister.dev/containers"),
            (OPERATOR, "create", "/secrets"),
            (API, "get", "/secrets"),
        )
        return all([await ask(*each) for each in asked])

    await until(known, what="the roles are known to the authorizer")
    yield ask
    await server.aclose()


def place_of(ref: KindRef) -> str:
    return f"{ref.group}/{ref.plural}"


@pytest.mark.parametrize(
    "ref", [each.ref for each in watched_kinds(TLS_ROUTES[0])], ids=lambda ref: ref.plural
)
async def test_the_operator_may_watch_what_it_watches(may: May, ref: KindRef) -> None:
    # What it does not write it never has to read again after a write of unknown outcome.
    read_only = ref in {NODE, ENDPOINT_SLICE}
    assert await may(OPERATOR, "get", place_of(ref)) is not read_only
    for verb in ("list", "watch"):
        assert await may(OPERATOR, verb, place_of(ref)), verb


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.INFO.kind)
async def test_the_operator_writes_status_and_never_spec_of_users(
    may: May, kind: type[Resource]
) -> None:
    place = place_of(of(kind))
    if "status" in kind.model_fields:
        assert await may(OPERATOR, "patch", f"{place}/status")
    own = kind.INFO.kind in {"Enclave", "Deployment", "HostnameClaim"}
    assert await may(OPERATOR, "create", place) is own
    assert await may(OPERATOR, "delete", place) is own
    assert not await may(OPERATOR, "update", place)
    # The finalizers of Enclaves and Organizations, and host names that pass to who replaces.
    patched = {Enclave, HostnameClaim, Organization}
    assert await may(OPERATOR, "patch", place) is (kind in patched)


@pytest.mark.parametrize(
    ("verb", "place"),
    [
        ("create", "/pods"),
        ("delete", "/pods"),
        ("patch", "/services"),
        ("create", "/secrets"),
        ("create", "/configmaps"),
        ("create", "/namespaces"),
        # Of those that it made: the policy cloister-organizations.
        ("delete", "/namespaces"),
        ("patch", "networking.k8s.io/networkpolicies"),
        ("patch", "policy/poddisruptionbudgets"),
        ("patch", "/resourcequotas"),
        ("patch", "gateway.networking.k8s.io/referencegrants"),
        ("update", "cloister.dev/enclaves/finalizers"),
        ("update", "cloister.dev/containers/finalizers"),
    ],
)
async def test_the_operator_makes_what_enclaves_are_made_of(
    may: May, verb: str, place: str
) -> None:
    assert await may(OPERATOR, verb, place)


@pytest.mark.parametrize("user", [OPERATOR, API])
@pytest.mark.parametrize(
    ("verb", "place"),
    [
        ("create", "/pods/exec"),
        ("create", "/pods/attach"),
        ("update", "/pods/ephemeralcontainers"),
        ("create", "/serviceaccounts/token"),
        ("impersonate", "/users"),
        ("delete", "rbac.authorization.k8s.io/rolebindings"),
        ("create", "rbac.authorization.k8s.io/clusterrolebindings"),
        ("patch", "rbac.authorization.k8s.io/clusterroles"),
        ("update", "admissionregistration.k8s.io/validatingadmissionpolicies"),
        ("update", "apiextensions.k8s.io/customresourcedefinitions"),
        ("update", "/namespaces"),
        ("update", "/secrets"),
    ],
)
async def test_neither_program_may_do_what_it_does_not_need(
    may: May, user: str, verb: str, place: str
) -> None:
    assert not await may(user, verb, place)


@pytest.mark.parametrize(
    "kind", [Container, Deployment, Secret, SSHKey, RegistryCredential, Domain]
)
async def test_the_facade_may_what_its_users_may(may: May, kind: type[Resource]) -> None:
    for verb in ("get", "list", "watch", "create"):
        assert await may(API, verb, place_of(of(kind))), verb
    # A Deployment ends with its last Container, and a key is never changed.
    assert await may(API, "delete", place_of(of(kind))) is (kind is not Deployment)
    assert await may(API, "patch", place_of(of(kind))) is (kind is not SSHKey)
    assert not await may(API, "patch", f"{place_of(of(kind))}/status")


@pytest.mark.parametrize("kind", [Organization, Host, Enclave])
async def test_the_facade_only_reads_what_is_not_its_users(may: May, kind: type[Resource]) -> None:
    for verb in ("list", "watch"):
        assert await may(API, verb, place_of(of(kind))), verb
    for verb in ("create", "delete", "update"):
        assert not await may(API, verb, place_of(of(kind))), verb
    # The members of an Organization, and the metering finalizer of an Enclave, by policies.
    assert await may(API, "patch", place_of(of(kind))) is (kind is not Host)


async def test_the_facade_claims_host_names_and_never_releases_them(may: May) -> None:
    place = place_of(of(HostnameClaim))
    for verb in ("get", "list", "watch", "create", "patch"):
        assert await may(API, verb, place), verb
    assert not await may(API, "delete", place)


async def test_the_facade_reads_no_pod_and_lists_no_core_secret(may: May) -> None:
    assert not await may(API, "get", "/pods")
    assert await may(API, "get", "/pods/log")
    assert not await may(API, "list", "/secrets")
    assert await may(API, "get", "/secrets")


@pytest.mark.parametrize("account", [API, OPERATOR])
async def test_no_account_reaches_a_kubelet(may: May, account: str) -> None:
    """A kubelet that is asked directly authorizes by these, and knows no admission policy."""
    parts = "proxy metrics stats log spec checkpoint configz healthz pods statusz flagz"
    for part in parts.split():
        for verb in ("get", "create"):
            assert not await may(account, verb, f"/nodes/{part}"), (verb, part)


async def test_the_facade_lists_the_usage_of_pods_and_no_node(may: May) -> None:
    assert await may(API, "list", "metrics.k8s.io/pods")
    for place in ("/nodes", "metrics.k8s.io/nodes"):
        for verb in ("get", "list"):
            assert not await may(API, verb, place), (verb, place)


async def test_the_facade_reads_published_measurements_and_writes_none(may: May) -> None:
    assert await may(API, "get", "/configmaps")
    for verb in ("list", "create", "patch", "delete"):
        assert not await may(API, verb, "/configmaps"), verb
