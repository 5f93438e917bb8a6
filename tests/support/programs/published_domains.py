"""The DNS records of Domains, published as the operator does where none runs."""

import asyncio
from typing import Any

import httpx

from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Domain
from tests.support.programs.facade import FacadeInstallation
from tests.support.waiting import until

__all__ = ["publish", "records_of", "register"]


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
