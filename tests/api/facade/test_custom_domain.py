"""Custom domains over REST: who may use one, and that its host name is claimed."""

import uuid

import httpx
import pytest

from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Domain, HostnameClaim
from tests.support.programs.facade import Facade, FacadeInstallation
from tests.support.waiting import until


async def make_domain(world: FacadeInstallation, *, verified: bool) -> str:
    """Make a Domain as the operator leaves it, and the right to have it."""
    zone = f"{world.organization}.test"
    await world.change_organization(entitlements={"domainSuffixes": [zone]})
    host = f"api-{uuid.uuid4().hex[:6]}.{zone}"
    name = host.replace(".", "-")
    body = {"metadata": {"name": name}, "spec": {"domain": host}}
    await world.kube.create(of(Domain), body, world.namespace)
    if verified:
        await world.kube.merge_patch(
            of(Domain), name, {"status": {"verified": True}}, world.namespace, subresource="status"
        )
    return host


async def asked(
    client: httpx.AsyncClient, world: FacadeInstallation, host: str, *, verified: bool
) -> httpx.Response:
    """Ask until the facade has seen the organization's right, the Domain and its status."""

    async def answered() -> httpx.Response | None:
        answer = await client.post("/api/containers", json=world.body("web", custom_domain=host))
        unseen = answer.status_code == 403 or "DomainNotFound" in answer.text
        late = verified and "DomainNotVerified" in answer.text
        return None if unseen or late else answer

    answer = await until(answered, what="a facade that knows the domain")
    assert answer is not None
    return answer


@pytest.mark.spec("8.11", "21.10")
async def test_a_verified_domain_is_claimed_with_the_container(
    facade: Facade, world: FacadeInstallation
) -> None:
    host = await make_domain(world, verified=True)
    async with facade.client(world.key) as client:
        made = await asked(client, world, host, verified=True)
        assert made.status_code == 201, made.text
        assert made.json()["domain"] == host
        assert host in await world.claims()
        question = {"name": "other", "debug": False, "custom_domain": host}
        taken = (await client.post("/api/containers/validate-name", json=question)).json()
        assert taken["available"] is False
        assert host in taken["reason"]
        same = {**question, "name": "web", "container_id": made.json()["id"]}
        kept = (await client.post("/api/containers/validate-name", json=same)).json()
        internal = made.json()["internal_domain"]
        assert kept == {"available": True, "name": "web", "internal_domain": internal}
        second = await client.post("/api/containers", json=world.body("two", custom_domain=host))
        assert second.status_code == 409
        free = await client.post("/api/containers/validate-name", json={"name": "two"})
        assert free.json()["available"] is True, "a refused create leaves nothing"


async def test_a_claim_left_behind_is_adopted(facade: Facade, world: FacadeInstallation) -> None:
    host = await make_domain(world, verified=True)
    holder = {"namespace": world.namespace, "name": "web"}
    claim = {"metadata": {"name": host}, "spec": {"holder": holder}}
    left = await world.kube.create(of(HostnameClaim), claim)
    async with facade.client(world.key) as client:
        made = await asked(client, world, host, verified=True)
        assert made.status_code == 201, made.text
    kept = await world.kube.get(of(HostnameClaim), host)
    assert kept["metadata"]["uid"] == left["metadata"]["uid"]
    # A new version, so that an operator that had found it orphaned cannot release it.
    assert kept["metadata"]["resourceVersion"] != left["metadata"]["resourceVersion"]


@pytest.mark.spec("21.10", "21.17")
@pytest.mark.attack("foreign-domain")
async def test_an_unverified_domain_is_refused(facade: Facade, world: FacadeInstallation) -> None:
    host = await make_domain(world, verified=False)
    async with facade.client(world.key) as client:
        refused = await asked(client, world, host, verified=False)
        assert refused.status_code == 400
        assert refused.json()["details"][0]["field"] == "custom_domain"
        question = {"name": "web", "debug": False, "custom_domain": host}
        answer = (await client.post("/api/containers/validate-name", json=question)).json()
        assert answer["available"] is False
        assert "not verified" in answer["reason"]
