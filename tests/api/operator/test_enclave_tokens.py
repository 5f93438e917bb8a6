"""What a tenant can read of its enclaves' tokens: nothing that the certificate endpoint accepts."""

from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from cloister_clients.kube import KindRef
from cloister_clients.kube.kinds import CONFIG_MAP, EVENT, POD, SECRET, of
from cloister_crds.kinds import Container, Enclave
from cloister_crds.names import token_audience
from dev.cluster import Cluster
from dev.cluster.images import Image, push
from tests.support.cluster.direct_client import DirectClient
from tests.support.cluster.pod_tokens import (
    KUBELET_GROUPS,
    KUBELET_USER,
    SERVICE_ACCOUNT,
    token_path,
    token_request,
)
from tests.support.programs.operator import Installation, file_text
from tests.support.programs.operator_facade import facade_of
from tests.support.tenant_walk.tenant import tenant_rights
from tests.support.waiting import until_sync

PATH = "/api/shim/cert"
ACCEPTED, REFUSED = 400, 401
"""Statuses of an unfit request with a token that the facade knows, and with any other."""
ISSUER = {
    "development": True,
    "certificates": {"issuer": "own", "own": {"certificate": "ca.pem", "key": "ca.key"}},
}
READ: tuple[KindRef, ...] = (
    *(SECRET, POD, EVENT, CONFIG_MAP, SERVICE_ACCOUNT),
    *(of(Container), of(Enclave)),
)
LONG = 32
"""Characters of the shortest word that could be a token."""


@pytest.fixture
def signed(api_cluster: Cluster, installation: Installation) -> Installation:
    """Return an installation with an enclave whose certificate is signed through the API."""
    image = push(Image(files={"/x": b"x"}, entrypoint=("/x",)), api_cluster.registry, "x")
    installation.repository("acme/web").release("v1", file_text(image))
    installation.settings |= {"apiAddress": "http://192.0.2.1", "signedCertificates": True}
    installation.operator().wait_until_it_leads()
    installation.create_container("web", repo="acme/web", tag="v1")
    until_sync(lambda: installation.objects("pods"), within=60, what="the Pod")
    return installation


@pytest.fixture
def tenant(signed: Installation) -> Iterator[DirectClient]:
    """Return a person with the role of tenants, and every right on our kinds."""
    signed.apply(*tenant_rights(signed.namespace, "mallory"))
    client = DirectClient(signed.cluster.kubeconfig, user="mallory", groups="system:authenticated")

    def bound() -> bool:
        places = [ref.path(signed.namespace) for ref in (SECRET, of(Enclave))]
        return all(client.request("GET", each).is_success for each in places)

    until_sync(bound, what="the authorizer knows the RoleBindings")
    yield client
    client.close()


def words(found: Any) -> Iterator[str]:
    """Return every word of an object, values of core Secrets decoded too."""
    if isinstance(found, dict):
        if isinstance(found.get("data"), dict):
            for value in found["data"].values():
                yield b64decode(value).decode(errors="replace")
        for value in found.values():
            yield from words(value)
    elif isinstance(found, list):
        for each in found:
            yield from words(each)
    elif isinstance(found, str):
        yield found


def readable(tenant: DirectClient, namespace: str) -> Iterator[str]:
    """Return every word that a tenant can read in its namespace, of each object and subresource."""
    for ref in READ:
        response = tenant.request("GET", ref.path(namespace))
        if response.is_success:
            found = response.json()["items"]
            yield from words(found)
            for each in found:
                one = ref.path(namespace, each["metadata"]["name"])
                yield from words(tenant.request("GET", one).json())
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    minted = tenant.request("POST", token_path(namespace), request)
    yield from words(minted.json())


def request_certificate(facade: httpx.Client, token: str) -> int:
    """Request a certificate with a token, and return the status: 400 says that it was accepted."""
    headers = {"Authorization": f"Bearer {token}"}
    return facade.post(PATH, json={"csr": "x"}, headers=headers).status_code


def pod_token(installation: Installation) -> str:
    """Request the token of the enclave's Pod as its kubelet does."""
    (enclave,) = installation.enclaves("web")
    (pod,) = installation.objects("pods")
    client = DirectClient(
        installation.cluster.kubeconfig, user=KUBELET_USER, groups=" ".join(KUBELET_GROUPS)
    )
    audience = token_audience(enclave.metadata.uid)
    body = token_request(audience, pod["metadata"]["name"], pod["metadata"]["uid"])
    response = client.request("POST", token_path(installation.namespace), body)
    client.close()
    return str(response.raise_for_status().json()["status"]["token"])


@pytest.mark.attack("enclave-token")
def test_a_tenant_reads_no_token_of_an_enclave(signed: Installation, tenant: DirectClient) -> None:
    """The attack: a tenant who reads core Secrets has a key of its own signed."""
    found = set(readable(tenant, signed.namespace))
    assert signed.enclaves("web")[0].spec.hostnames[0] in found, "it reads its enclaves"
    candidates = [each for each in found if len(each) >= LONG and each.isprintable()]
    with facade_of(signed, ISSUER) as facade:
        until_sync(
            lambda: request_certificate(facade, pod_token(signed)) == ACCEPTED,
            what="the facade to accept what the kubelet gives to the enclave",
        )
        accepted = [each for each in candidates if request_certificate(facade, each) != REFUSED]
    assert not accepted
