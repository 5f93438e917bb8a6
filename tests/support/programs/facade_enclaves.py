"""What the operator makes of Enclaves, host names and Domains, where none runs."""

import asyncio
import contextlib
import uuid
from typing import Any

import httpx

from cloister_clients.kube import NotFound
from cloister_clients.kube.kinds import POD, of
from cloister_crds.kinds import Container, Domain, Enclave, HostnameClaim
from cloister_crds.kinds.container import ContainerSpec
from cloister_crds.lifecycle.request import record
from cloister_crds.names import ACCOUNT, token_audience
from tests.support.cluster.pod_tokens import (
    KUBELET_GROUPS,
    KUBELET_USER,
    SERVICE_ACCOUNT,
    token_path,
    token_request,
)
from tests.support.programs.facade import DOMAIN, FacadeInstallation
from tests.support.waiting import until

__all__ = [
    "challenge_label",
    "create_pod",
    "enclave_with_token",
    "hold_domain",
    "publish",
    "records_of",
    "register",
    "report_domain",
    "request_token",
]


async def enclave_with_token(world: FacadeInstallation, name: str, *hostnames: str) -> str:
    """Create an Enclave with host names, by default the generated one, and return its Pod's token.

    Its Container is created with it, and for a custom domain the verified Domain and the claim.
    """
    if await world.container(name) is None:
        wanted = {"repo": world.repo, "tag": "v1.0.0", "host": world.host}
        body = {"metadata": {"name": name}, "spec": wanted}
        await world.kube.create(of(Container), body, world.namespace)
    owner = await world.kube.get(of(Container), name, world.namespace)
    for hostname in hostnames:
        if not hostname.endswith(f".{DOMAIN}"):
            await hold_domain(world, hostname, name)
    request = {"repo": world.repo, "tag": "v1.0.0"}
    spec = {
        "container": {"name": name, "uid": owner["metadata"]["uid"]},
        "request": record(ContainerSpec.model_validate({"name": name, **request})).wire(),
        "tag": "v1.0.0",
        "commit": "0" * 40,
        "hostnames": list(hostnames) or [f"{name}.{world.organization}.{DOMAIN}"],
        "signedCertificate": True,
    }
    await world.create_enclave(name, {}, spec)
    made = await world.kube.get(of(Enclave), name, world.namespace)
    pod = await create_pod(world, name)
    return await request_token(world, token_audience(made["metadata"]["uid"]), name, pod)


async def create_pod(world: FacadeInstallation, name: str, account: str = ACCOUNT) -> str:
    """Create a Pod, instead of an earlier one of its name, and return its uid."""
    body = {"metadata": {"name": account, "namespace": world.namespace}}
    await world.kube.apply(SERVICE_ACCOUNT, body)
    with contextlib.suppress(NotFound):
        await world.kube.delete(POD, name, world.namespace, grace_period=0)
    spec = {
        "serviceAccountName": account,
        "containers": [{"name": "a", "image": "registry.example.com/a:1"}],
    }
    pod = {"metadata": {"name": name}, "spec": spec}
    made = await world.kube.create(POD, pod, world.namespace)
    return str(made["metadata"]["uid"])


async def request_token(
    world: FacadeInstallation, audience: str, pod: str, uid: str, account: str = ACCOUNT
) -> str:
    """Request a token as a kubelet does.

    Parameters
    ----------
    audience
        Audience; empty = the API server's own.
    pod, uid
        Name and uid of the Pod that it is bound to; empty = none.
    """
    config = world.kube.config
    acting = [("Impersonate-User", KUBELET_USER)]
    acting += [("Impersonate-Group", group) for group in KUBELET_GROUPS]
    async with httpx.AsyncClient(
        base_url=config.server,
        verify=config.tls or True,
        headers=acting,
        trust_env=False,
        timeout=60,
    ) as client:
        body = token_request(audience, pod, uid)
        response = await client.post(token_path(world.namespace, account), json=body)
    assert response.is_success, response.text
    return str(response.json()["status"]["token"])


async def hold_domain(world: FacadeInstallation, hostname: str, container: str) -> None:
    """Create a verified Domain and the claim of its host name, as the operator does."""
    domain = {"metadata": {"name": hostname}, "spec": {"domain": hostname}}
    await world.kube.create(of(Domain), domain, world.namespace)
    records = {"challengeLabel": challenge_label(world, hostname)}
    await report_domain(world, hostname, verified=True, records=records)
    holder = {"namespace": world.namespace, "name": container}
    claim = {"metadata": {"name": hostname}, "spec": {"holder": holder}}
    await world.kube.create(of(HostnameClaim), claim)


def challenge_label(world: FacadeInstallation, hostname: str) -> str:
    """Return the label of the proof of a custom domain."""
    return uuid.uuid5(uuid.NAMESPACE_DNS, f"{world.organization}.{hostname}").hex


async def report_domain(world: FacadeInstallation, name: str, **status: Any) -> None:
    """Write a Domain's status as the operator does."""
    await world.kube.merge_patch(
        of(Domain), name, {"status": status}, world.namespace, subresource="status"
    )


def records_of(host: str) -> dict[str, str]:
    """Return the records of a domain, as far as they look like real ones."""
    return {
        "txtName": f"_cloister.{host}",
        "txtValue": f"cloister-verification={host}:{'a' * 32}",
        "cnameTarget": f"{'b' * 32}.dns.example.test",
    }


async def publish(world: FacadeInstallation, host: str, **status: Any) -> None:
    """Write a Domain's status, once the Domain is there; without fields its records."""

    async def written() -> bool:
        found = (await world.kube.list(of(Domain), world.namespace)).items
        if all(each["metadata"]["name"] != host for each in found):
            return False
        patch = {"status": status or {"records": records_of(host)}}
        await world.kube.merge_patch(of(Domain), host, patch, world.namespace, subresource="status")
        return True

    await until(written, what=f"the domain {host}")


async def register(
    world: FacadeInstallation, client: httpx.AsyncClient, host: str, **headers: str
) -> httpx.Response:
    """Register a domain by the API, whose records are published meanwhile."""
    sent = client.post("/api/domains", json={"domain": host}, headers=headers)
    answer, _ = await asyncio.gather(sent, publish(world, host))
    return answer
