"""Every call of the facade that changes the cluster, with its preconditions and its request.

`CALLS` and `ELSEWHERE` together have every operation of the OpenAPI document that is not a GET; a
test compares them, so that a new one is covered or listed with the reason why it need not be.
"""

import asyncio
import contextlib
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from cloister_clients.kube import KubeError
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Domain
from cloister_crds.kinds.meta import REQUESTED_AT_ANNOTATION
from tests.support.clients.openapi_check import described
from tests.support.programs.facade import (
    COMMIT_OF_TAG,
    WEBHOOK_SECRET,
    FacadeInstallation,
    config_file,
)
from tests.support.servers.git import Repositories
from tests.support.waiting import until

__all__ = ["CALLS", "ELSEWHERE", "Call", "Sent", "simulated_domain_checks"]


@dataclass(frozen=True)
class Sent:
    """One request."""

    method: str
    """HTTP method."""
    path: str
    """Path."""
    body: Any = None
    """Body as JSON data; None = none."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Additional headers."""

    async def by(self, client: httpx.AsyncClient) -> httpx.Response:
        """Send it."""
        content = None if self.body is None else json.dumps(self.body).encode()
        headers = {**self.headers, **({"content-type": "application/json"} if content else {})}
        return await client.request(self.method, self.path, content=content, headers=headers)


Prepare = Callable[[FacadeInstallation, httpx.AsyncClient, str], Awaitable[Sent]]
"""Create what a call needs, for objects of a unique name, and return its request."""


@dataclass(frozen=True)
class Call:
    """One call."""

    prepare: Prepare
    """Creates its preconditions."""
    again: frozenset[int] = frozenset()
    """Allowed statuses of a retry other than success: the first try had taken effect."""


READY = {"phase": "ready", "currentTag": "v1.0.0", "currentCommit": COMMIT_OF_TAG}
PENDING = {"revision": "b", "tag": "v1.1.0", "uid": "0b", "status": "ready", "type": "blue_green"}


async def container(
    world: FacadeInstallation, client: httpx.AsyncClient, name: str, **status: Any
) -> str:
    """Create a container in a state, and return its path."""
    made = await client.post("/api/containers", json=world.body(name))
    assert made.status_code == 201, made.text
    path = str(made.headers["location"])
    if status.get("phase") == "stopped":
        await client.post(f"{path}/stop")
    if status:
        await world.report(name, **status)

        async def shown() -> bool:
            record = (await client.get(path)).json()
            reported = "update_status" in record
            return record["status"] == status["phase"] and reported is ("update" in status)

        await until(shown, what=f"{name} in its state")
    return path


async def post(client: httpx.AsyncClient, path: str, body: Any) -> None:
    """Create an object that a call needs."""
    response = await client.post(path, json=body)
    assert response.is_success, response.text


async def create(world: FacadeInstallation, _: httpx.AsyncClient, name: str) -> Sent:
    """Create a container of a repository that has none."""
    repo = f"{world.organization}/{name}"
    repositories = Repositories(world.settings.parent / "repositories")
    repositories.create(repo).release("v1.0.0", config_file(world.image))
    return Sent("POST", "/api/containers", world.body(name, repo=repo))


def action(word: str, body: Any = None, **status: Any) -> Prepare:
    """Act on a container in a state."""

    async def prepare(world: FacadeInstallation, client: httpx.AsyncClient, name: str) -> Sent:
        path = await container(world, client, name, **status)
        return Sent("POST", f"{path}/{word}", body)

    return prepare


async def delete(world: FacadeInstallation, client: httpx.AsyncClient, name: str) -> Sent:
    """Delete a container."""
    return Sent("DELETE", await container(world, client, name))


async def follow(world: FacadeInstallation, client: httpx.AsyncClient, name: str) -> Sent:
    """Follow releases."""
    path = await container(world, client, name)
    await post(client, f"{path}/github-connection", {"enabled": True})
    return Sent("POST", f"{path}/auto-update", {"auto_update": True})


async def released(world: FacadeInstallation, client: httpx.AsyncClient, name: str) -> Sent:
    """Announce a release of a repository that a container follows."""
    sent = await follow(world, client, name)
    await post(client, sent.path, sent.body)
    body = {"action": "published", "repository": {"full_name": world.repo}}
    mac = hmac.new(WEBHOOK_SECRET.encode(), json.dumps(body).encode(), hashlib.sha256)
    headers = {"x-github-event": "release", "x-hub-signature-256": f"sha256={mac.hexdigest()}"}
    return Sent("POST", "/api/webhooks/releases", body, headers)


async def staged(world: FacadeInstallation, client: httpx.AsyncClient, name: str) -> Sent:
    """Accept or cancel an update that is ready."""
    enclave = f"{name}-a-1"
    update = {**PENDING, "enclave": f"{name}-b-1", "preview": f"{name}.preview.test"}
    made = await client.post("/api/containers", json=world.body(name))
    assert made.status_code == 201, made.text
    await world.enclave(name, name=enclave)
    path = str(made.headers["location"])
    await world.report(name, **READY)
    await post(client, f"{path}/relaunch", {"tag": "v1.1.0"})
    await world.report(name, **READY, activeEnclave=enclave, update=update)

    async def shown() -> bool:
        return bool((await client.get(path)).json().get("update_status") == "ready")

    await until(shown, what="the staged update")
    return Sent("POST", path)


def of_update(word: str) -> Prepare:
    """Act on a staged update."""

    async def prepare(world: FacadeInstallation, client: httpx.AsyncClient, name: str) -> Sent:
        sent = await staged(world, client, name)
        return Sent("POST", f"{sent.path}/update/{word}")

    return prepare


async def deployment(world: FacadeInstallation, client: httpx.AsyncClient, name: str) -> str:
    """Create a deployment with one ready container, and return its path."""
    sent = await create(world, client, name)
    await post(client, sent.path, sent.body)
    await world.report(name, **READY)
    repo = sent.body["repo"]

    async def shown() -> str:
        listed = (await client.get("/api/deployments")).json()
        return next(
            (each["id"] for each in listed if each["repo"] == repo and each["ready_count"]), ""
        )

    return f"/api/deployments/{await until(shown, what='the deployment')}"


async def change_deployment(
    world: FacadeInstallation, client: httpx.AsyncClient, name: str
) -> Sent:
    """Change the default for staging."""
    path = await deployment(world, client, name)
    return Sent("PATCH", path, {"default_staging": True})


async def update_deployment(
    world: FacadeInstallation, client: httpx.AsyncClient, name: str
) -> Sent:
    """Update the containers of a deployment to a tag."""
    path = await deployment(world, client, name)
    return Sent("POST", f"{path}/update", {"tag": "v1.0.0", "staging": True})


async def create_secret(_: FacadeInstallation, __: httpx.AsyncClient, name: str) -> Sent:
    """Create a secret."""
    return Sent("POST", "/api/secrets", {"name": name, "value": "made-up"})


def of_secret(method: str, body: Any = None) -> Prepare:
    """Update or delete a secret."""

    async def prepare(_: FacadeInstallation, client: httpx.AsyncClient, name: str) -> Sent:
        await post(client, "/api/secrets", {"name": name, "value": "made-up"})
        return Sent(method, f"/api/secrets/{name}", body)

    return prepare


def key_body(name: str) -> dict[str, str]:
    """Return the body that registers an SSH key."""
    example = described()["components"]["schemas"]["CreateSshKeyRequest"]["examples"][0]
    return {"name": name, "public_key": example["public_key"]}


async def create_key(_: FacadeInstallation, __: httpx.AsyncClient, name: str) -> Sent:
    """Register an SSH key."""
    return Sent("POST", "/api/ssh-keys", key_body(name))


async def delete_key(_: FacadeInstallation, client: httpx.AsyncClient, name: str) -> Sent:
    """Delete an SSH key."""
    await post(client, "/api/ssh-keys", key_body(name))
    return Sent("DELETE", f"/api/ssh-keys/{name}")


def host_of(world: FacadeInstallation, name: str) -> str:
    """Return a domain of the organization."""
    return f"{name}.{world.organization}.test"


async def create_domain(world: FacadeInstallation, _: httpx.AsyncClient, name: str) -> Sent:
    """Register a domain."""
    return Sent("POST", "/api/domains", {"domain": host_of(world, name)})


async def registered(world: FacadeInstallation, client: httpx.AsyncClient, name: str) -> str:
    """Create a Domain, as an administrator does with kubectl, and return its path."""
    host = host_of(world, name)
    body = {"metadata": {"name": host}, "spec": {"domain": host}}
    await world.kube.create(of(Domain), body, world.namespace)

    async def shown() -> bool:
        listed = (await client.get("/api/domains")).json()
        return any(each["domain"] == host and each["txt_record_value"] for each in listed)

    await until(shown, what=f"the domain {host}")
    return f"/api/domains/{host}"


async def verify_domain(world: FacadeInstallation, client: httpx.AsyncClient, name: str) -> Sent:
    """Request a check of a domain."""
    return Sent("POST", f"{await registered(world, client, name)}/verify")


async def delete_domain(world: FacadeInstallation, client: httpx.AsyncClient, name: str) -> Sent:
    """Delete a domain."""
    return Sent("DELETE", await registered(world, client, name))


LOGIN = {"username": "ada", "token": "made-up"}


async def no_credentials(world: FacadeInstallation, client: httpx.AsyncClient) -> None:
    """Delete credentials; there is only one per registry."""
    del world
    gone = await client.delete("/api/registry-credentials/ghcr")
    assert gone.status_code in {204, 404}, gone.text


async def put_credentials(world: FacadeInstallation, client: httpx.AsyncClient, _: str) -> Sent:
    """Create credentials."""
    await no_credentials(world, client)
    return Sent("PUT", "/api/registry-credentials/ghcr", LOGIN)


async def delete_credentials(world: FacadeInstallation, client: httpx.AsyncClient, _: str) -> Sent:
    """Delete credentials."""
    await no_credentials(world, client)
    put = await client.put("/api/registry-credentials/ghcr", json=LOGIN)
    assert put.status_code == 200, put.text
    return Sent("DELETE", "/api/registry-credentials/ghcr")


@contextlib.asynccontextmanager
async def simulated_domain_checks(world: FacadeInstallation) -> AsyncIterator[None]:
    """Report on Domains as the operator does, until the block ends: no operator runs there."""
    answering = asyncio.create_task(report_on_domains(world))
    try:
        yield
    finally:
        answering.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await answering


async def report_on_domains(world: FacadeInstallation) -> None:
    """Report on Domains as the operator does, until cancelled."""
    while True:
        with contextlib.suppress(KubeError):
            for each in (await world.kube.list(of(Domain), world.namespace)).items:
                meta = each["metadata"]
                asked = meta.get("annotations", {}).get(REQUESTED_AT_ANNOTATION, "")
                records = {"txtName": "t", "txtValue": "v:n", "cnameTarget": "h.test"}
                status = {"records": records, "lastHandledRequest": asked}
                if {key: each.get("status", {}).get(key) for key in status} != status:
                    await world.kube.merge_patch(
                        of(Domain),
                        meta["name"],
                        {"status": status},
                        world.namespace,
                        subresource="status",
                    )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await asyncio.Event().wait()


GONE = frozenset({404})
DONE = frozenset({409})
CALLS: dict[str, Call] = {
    "create_container": Call(create),
    "relaunch_container": Call(action("relaunch", {"variables": {"A": "b"}}, **READY)),
    "start_container": Call(action("start", {}, phase="stopped"), DONE),
    "stop_container": Call(action("stop", **READY)),
    "follow_releases": Call(follow),
    "connect_repository": Call(action("github-connection", {"enabled": False})),
    "accept_update": Call(of_update("accept")),
    "cancel_update": Call(of_update("cancel"), DONE),
    "delete_container": Call(delete, GONE),
    "change_deployment": Call(change_deployment),
    "update_deployment": Call(update_deployment),
    "create_secret": Call(create_secret),
    "update_secret": Call(of_secret("PUT", {"value": "made-up-too"})),
    "delete_secret": Call(of_secret("DELETE"), GONE),
    "create_ssh_key": Call(create_key),
    "delete_ssh_key": Call(delete_key, GONE),
    "create_domain": Call(create_domain),
    "verify_domain": Call(verify_domain),
    "delete_domain": Call(delete_domain, GONE),
    "put_credentials": Call(put_credentials),
    "delete_credentials": Call(delete_credentials, GONE),
    "report_release": Call(released),
}
"""Operation -> the call."""
LEDGER = "writes only to the ledger, in one transaction"
NOTHING = "changes nothing"
SIGNED_IN = "403 for an admin key; the dashboard's tests interrupt the same services"
ELSEWHERE: dict[str, str] = {
    "create_key": LEDGER,
    "update_key": LEDGER,
    "delete_key": LEDGER,
    "change_key": LEDGER,
    "delete_numbered_key": LEDGER,
    "report_usage": LEDGER,
    "sign_certificate": LEDGER,
    "validate_release": NOTHING,
    "validate_name": NOTHING,
    "get_key_usage": NOTHING,
    "check_key": NOTHING,
    "put_member": SIGNED_IN,
    "remove_member": SIGNED_IN,
    "create_admin_key": SIGNED_IN,
    "reveal_admin_key": SIGNED_IN,
    "revoke_admin_key": SIGNED_IN,
    "report_payment": "one status write of the Organization, which the processor's next event or "
    "the next look at the processor repeats",
}
"""Operation -> why a crash of the API server cannot leave a partial effect."""
