"""The rest of the cluster is not Cloister's: its policies refuse nothing of other products.

Somebody who may write everything but Cloister's policies creates one object of each cluster-scoped
kind. The kinds come from discovery, so that a new one cannot be forgotten.
"""

from base64 import b64encode
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from cloister_clients.clock import utc_now
from tests.support.cluster.admission_policies import MANIFESTS
from tests.support.cluster.api_server import ApiServer
from tests.support.cluster.gateway_crds import gateway_crd_files
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

SAMPLES = MANIFESTS.parents[1] / "tests" / "data" / "cluster-scoped.yaml"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
POLICIES = "admissionregistration.k8s.io"
CLASSES = "/apis/gateway.networking.k8s.io/v1/gatewayclasses"
NEWER = {
    *("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"),
    *("ClusterTrustBundle", "DeviceTaintRule", "StorageVersionMigration"),
}
"""Kinds that Kubernetes serves by default since 1.36, and since 1.37."""


async def cluster_scoped(server: ApiServer) -> dict[str, str]:
    """Return the path of each cluster-scoped kind that can be created, but for our own kinds."""
    groups = (await server.get("/apis")).body["groups"]
    preferred = [f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups]
    found = {}
    for root in ("/api/v1", *preferred):
        for each in (await server.get(root)).body["resources"]:
            if not each["namespaced"] and "create" in each["verbs"] and "/" not in each["name"]:
                found[each["kind"]] = f"{root}/{each['name']}"
    return {kind: path for kind, path in found.items() if "/cloister.dev/" not in path}


def samples() -> dict[str, dict[str, Any]]:
    """Return a small valid object of each kind."""
    found = {each["kind"]: each for each in yaml.safe_load_all(SAMPLES.read_text())}
    key = ec.generate_private_key(ec.SECP256R1())
    request = (
        x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, SHA256())
    )
    pem = b64encode(request.public_bytes(Encoding.PEM)).decode()
    found["CertificateSigningRequest"]["spec"]["request"] = pem
    found["ClusterTrustBundle"]["spec"]["trustBundle"] = authority(key)
    return found


def authority(key: ec.EllipticCurvePrivateKey) -> str:
    """Return a certificate of an authority, PEM."""
    name, now = x509.Name([]), utc_now()
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).serial_number(1)
    builder = builder.public_key(key.public_key()).not_valid_before(now)
    builder = builder.not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return builder.sign(key, SHA256()).public_bytes(Encoding.PEM).decode()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def platform(policed: ApiServer) -> AsyncIterator[ApiServer]:
    """Provide somebody who may write everything, but may not change admission policies."""
    for file in gateway_crd_files():
        crd = yaml.safe_load(file.read_text())
        await policed.apply(
            crd,
            f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}",
        )
    groups = {group["name"] for group in (await policed.get("/apis")).body["groups"]}
    everything = {
        "apiGroups": ["", "gateway.networking.k8s.io", *sorted(groups - {POLICIES})],
        "resources": ["*"],
        "verbs": ["*"],
    }
    policies = {"apiGroups": [POLICIES], "resources": ["*"], "verbs": ["create", "get", "delete"]}
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "platform"},
        "rules": [everything, policies],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "platform"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "platform",
        },
        "subjects": [{"kind": "User", "name": "grace", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    await policed.apply(role, f"{RBAC}/clusterroles/platform")
    await policed.apply(binding, f"{RBAC}/clusterrolebindings/platform")
    person = policed.impersonating("grace", "system:authenticated")

    async def served() -> bool:
        return (await person.get(CLASSES)).accepted

    await until(served, what="the kinds of the Gateway API are served")
    yield person
    await person.aclose()


async def test_every_cluster_scoped_kind_can_be_created(platform: ApiServer) -> None:
    paths, bodies = await cluster_scoped(platform), samples()
    new = paths.keys() - bodies.keys()
    assert new == set(), "add an object of the new kind to cluster-scoped.yaml"
    assert bodies.keys() - paths.keys() <= NEWER
    refused = {}
    for kind, path in paths.items():
        verdict = await platform.post(path, bodies[kind], dryRun="All")
        if not verdict.accepted:
            refused[kind] = verdict.message
    assert refused == {}


async def test_the_controller_of_a_gateway_class_reports_on_it(platform: ApiServer) -> None:
    made = await platform.post(CLASSES, samples()["GatewayClass"])
    assert made.accepted, made.message
    accepted = {
        "type": "Accepted",
        "status": "True",
        "reason": "Accepted",
        "message": "",
        "lastTransitionTime": "2026-11-25T08:00:00Z",
    }
    path = f"{CLASSES}/other-product"
    told = await platform.patch(f"{path}/status", {"status": {"conditions": [accepted]}})
    assert told.accepted, told.message
    assert (await platform.delete(path)).accepted
