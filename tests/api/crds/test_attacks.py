"""Attacks of a tenant with kubectl that have no rule of their own and must keep failing.

The whole list, with the tests of the others: docs/development/attacks.md.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.cluster.api_server import ApiServer
from tests.support.tenant_walk.tenant import tenant_rights
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

API = "/apis/cloister.dev/v1alpha1/namespaces/org-acme"
CORE = "/api/v1/namespaces"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tenant(policed: ApiServer) -> AsyncIterator[ApiServer]:
    """Provide a person who may write every kind of ours in org-acme."""
    for each in tenant_rights("org-acme", "mallory"):
        plural = "roles" if each["kind"] == "Role" else "rolebindings"
        place = f"/apis/rbac.authorization.k8s.io/v1/namespaces/org-acme/{plural}"
        await policed.apply(each, f"{place}/{each['metadata']['name']}")
    person = policed.impersonating("mallory", "system:authenticated")

    async def bound() -> bool:
        return (await person.post(f"{API}/containers", container(), dryRun="All")).accepted

    await until(bound, what="the authorizer knows the RoleBindings")
    yield person
    await person.aclose()


def container(**spec: Any) -> dict[str, Any]:
    head = {"apiVersion": "cloister.dev/v1alpha1", "kind": "Container"}
    return {**head, "metadata": {"name": "x"}, "spec": {"repo": "a/b", "tag": "v1", **spec}}


@pytest.mark.attack("rest-of-cluster")
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "/api/v1/namespaces/org-acme", {"metadata": {"labels": {"a": "b"}}}),
        ("POST", f"{CORE}/org-acme/serviceaccounts/default/token", {"spec": {}}),
        ("POST", "/apis/apps/v1/namespaces/org-acme/statefulsets", {"metadata": {"name": "x"}}),
        ("GET", f"{CORE}/org-other/secrets", None),
        ("GET", "/apis/cloister.dev/v1alpha1/containers", None),
        ("GET", "/api/v1/secrets", None),
        ("GET", "/api/v1/nodes", None),
        ("POST", "/apis/cloister.dev/v1alpha1/organizations", {"metadata": {"name": "x"}}),
        ("POST", "/apis/cloister.dev/v1alpha1/hostnameclaims", {"metadata": {"name": "x.test"}}),
    ],
)
async def test_the_rest_of_the_cluster_is_forbidden(
    tenant: ApiServer, method: str, path: str, body: Any
) -> None:
    patch = "merge" if method == "PATCH" else None
    verdict = await tenant.request(method, path, body, patch=patch)
    assert verdict.status == 403, verdict


@pytest.mark.attack("spelling-of-domain")
@pytest.mark.parametrize(
    "domain",
    ["Web.Acme.example.test", "web.acme.example.test.", "*.example.test", "a..b", "a/b", "é.test"],
)
async def test_a_custom_domain_has_one_spelling(tenant: ApiServer, domain: str) -> None:
    verdict = await tenant.post(f"{API}/containers", container(customDomain=domain), dryRun="All")
    assert verdict.status == 422, verdict
    assert "customDomain" in verdict.message


@pytest.mark.attack("foreign-core-secret")
@pytest.mark.parametrize("name", ["org-other/value", "../value", "value.org-other.svc/x"])
async def test_a_secret_of_another_namespace_cannot_be_named(tenant: ApiServer, name: str) -> None:
    spec = {"name": "KEY", "secretRef": {"name": name}}
    head = {"apiVersion": "cloister.dev/v1alpha1", "kind": "Secret", "metadata": {"name": "key"}}
    verdict = await tenant.post(f"{API}/secrets", {**head, "spec": spec}, dryRun="All")
    assert verdict.status == 422, verdict
    spec = {"name": "KEY", "secretRef": {"name": "value", "namespace": "org-other"}}
    strict = {"dryRun": "All", "fieldValidation": "Strict"}
    verdict = await tenant.post(f"{API}/secrets", {**head, "spec": spec}, **strict)
    assert verdict.status == 400, verdict
    assert "namespace" in verdict.message
