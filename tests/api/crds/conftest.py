"""Two API servers: one with the kinds, shared with others, and one with policies and roles too."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from dev import cluster as local
from tests.support.cluster.accounts import install_roles, organization_namespace
from tests.support.cluster.admission_policies import install_policies, remove_policies
from tests.support.cluster.api_server import ApiServer
from tests.support.cluster.clusters import install_crds, session_name
from tests.support.waiting import until


@pytest.fixture(scope="session")
def kubeconfig(request: pytest.FixtureRequest) -> Path:
    """Provide an administrator's way to a server that other tests use as well."""
    given = os.environ.get("CLOISTER_TEST_KUBECONFIG")
    if given:
        return Path(given)
    found: local.Cluster = request.getfixturevalue("api_cluster")
    return found.kubeconfig


@pytest.fixture(scope="session")
def guarded(worker_id: str) -> Iterator[Path]:
    """Provide an administrator's way to a server of our own, with kinds, accounts and roles.

    Admission policies, which come with some tests, keep even administrators from what others do.
    """
    given = os.environ.get("CLOISTER_TEST_KUBECONFIG")
    if given:
        yield Path(given)
        return
    name = f"{session_name()}-guarded-{worker_id}"
    found = local.up(name, node=False)
    install_crds(found)
    install_roles(found)
    made = [body for _, body in organization_namespace("acme")]
    found.kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(made))
    yield found.kubeconfig
    local.down(name)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def policed(guarded: Path) -> AsyncIterator[ApiServer]:
    """Provide an administrator of the guarded server, with every admission policy at work."""
    admin = ApiServer.administrator(guarded)
    for name in ("acme", "other"):
        metadata = {"name": f"org-{name}", "labels": {"cloister.dev/organization": name}}
        await admin.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata},
            f"/api/v1/namespaces/org-{name}",
        )
    stranger = admin.impersonating("stranger", "system:authenticated")
    subject = {"kind": "User", "name": "stranger", "apiGroup": "rbac.authorization.k8s.io"}
    await admin.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "stranger", "namespace": "org-acme"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [subject],
        },
        "/apis/rbac.authorization.k8s.io/v1/namespaces/org-acme/rolebindings/stranger",
    )
    probe = {
        "apiVersion": "cloister.dev/v1alpha1",
        "kind": "Container",
        "metadata": {"name": "probe", "annotations": {"cloister.dev/paused": "true"}},
        "spec": {"repo": "acme/web", "tag": "v1.0.0"},
    }
    place = "/apis/cloister.dev/v1alpha1/namespaces/org-acme/containers"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe"},
        "spec": {"containers": [{"name": "a", "image": "registry.example.com/a:1"}]},
    }

    async def refused() -> bool:
        verdicts = [
            await stranger.post(place, probe, dryRun="All"),
            await stranger.post("/api/v1/namespaces/org-acme/pods", pod, dryRun="All"),
        ]
        return all("ValidatingAdmissionPolicy" in verdict.message for verdict in verdicts)

    try:
        await install_policies(admin)
        await until(refused, what="the admission policies work")
        yield admin
    finally:
        await remove_policies(admin)
        await stranger.aclose()
        await admin.aclose()
