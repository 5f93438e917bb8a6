"""Enclaves with a token, and the host names of their Containers, as the operator makes them."""

import secrets
import uuid
from typing import Any

from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Container, Domain, HostnameClaim
from cloister_crds.kinds.container import ContainerSpec
from cloister_crds.lifecycle.request import record
from cloister_crds.tokens import token_digest, token_of
from tests.support.programs.facade import DOMAIN, FacadeInstallation

__all__ = ["challenge_label", "enclave_with_token", "hold_domain", "report_domain"]


async def enclave_with_token(world: FacadeInstallation, name: str, *hostnames: str) -> str:
    """Create an Enclave with host names, by default the generated one, and return its token.

    Its Container is created with it, and for a custom domain the verified Domain and the claim.
    """
    token = token_of(world.namespace, name, secrets.token_urlsafe(32))
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
        "tokenDigest": token_digest(token),
    }
    await world.create_enclave(name, {}, spec)
    return token


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
