"""Limits of an organization at the REST API: one error, before anything is written."""

from typing import Any

import httpx
import pytest

from cloister_clients.kube.kinds import RESOURCE_QUOTA, SECRET
from cloister_crds.lifecycle.admission.quotas import quota_reached
from tests.api.facade.test_ssh_keys import PUBLIC
from tests.support.programs.facade import Facade, FacadeInstallation
from tests.support.programs.facade_enclaves import register
from tests.support.waiting import until

Body = dict[str, Any]


def body_of(path: str, number: int, world: FacadeInstallation) -> Body:
    """Return the body that creates the object of a number."""
    return {
        "/api/secrets": {"name": f"KEY_{number}", "value": "a"},
        "/api/ssh-keys": {"name": f"key-{number}", "public_key": PUBLIC},
        "/api/domains": {"domain": f"w{number}.{world.organization}.test"},
        "/api/keys": {"name": f"key {number}"},
    }[path]


async def limited(client: httpx.AsyncClient, world: FacadeInstallation, **limits: int) -> None:
    """Change the limits, and wait until the facade has them."""
    await world.change_organization(
        limits=limits,
        entitlements={"domainSuffixes": [f"{world.organization}.test"]},
        billing={"tokenBilling": True},
    )

    async def known() -> bool:
        shown = (await client.get("/api/organization")).json()
        return bool(shown["limits"]["secrets"] == limits["secrets"])

    await until(known, what="the limits")


@pytest.mark.spec("12.13")
@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("/api/secrets", "secrets"),
        ("/api/ssh-keys", "SSH keys"),
        ("/api/domains", "domains"),
        ("/api/keys", "API keys"),
    ],
)
async def test_a_create_above_a_limit_is_refused_before_anything_is_written(
    facade: Facade, world: FacadeInstallation, path: str, what: str
) -> None:
    async with facade.client(world.key) as client:
        await limited(client, world, secrets=1, sshKeys=1, domains=1, apiKeys=1)
        retried = {"Idempotency-Key": "first"}
        first = body_of(path, 1, world)
        if path == "/api/domains":
            made = await register(world, client, first["domain"], **retried)
        else:
            made = await client.post(path, json=first, headers=retried)
        assert made.is_success, made.text
        refused = await client.post(path, json=body_of(path, 2, world))
        assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN")
        assert refused.json()["error"] == quota_reached(what, 1, 1)
        assert len((await client.get(path)).json()) == 1
        core = await world.kube.list(SECRET, world.namespace)
        assert len(core.items) == (path == "/api/secrets")
        # A retry of what exists is no further object.
        again = await client.post(path, json=first, headers=retried)
        assert again.is_success, again.text


@pytest.mark.spec("12.13")
async def test_the_quota_of_the_namespace_is_the_same_error(
    facade: Facade, world: FacadeInstallation
) -> None:
    count = "count/sshkeys.cloister.dev"
    quota = {"metadata": {"name": "cloister-limits"}, "spec": {"hard": {count: "0"}}}
    await world.kube.create(RESOURCE_QUOTA, quota, world.namespace)

    async def counted() -> bool:
        found = await world.kube.get(RESOURCE_QUOTA, "cloister-limits", world.namespace)
        return count in found.get("status", {}).get("used", {})

    await until(counted, within=120, what="the first count of the quota")
    async with facade.client(world.key) as client:
        refused = await client.post("/api/ssh-keys", json=body_of("/api/ssh-keys", 1, world))
        assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN")
        assert refused.json()["error"] == quota_reached("SSH keys", 0, 0)
