"""/api/domains; what the operator writes is written by the test."""

import asyncio
import uuid
from typing import Any

import httpx
import pytest

from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Container, Domain
from tests.support.programs.facade import DOMAIN, Facade, FacadeInstallation
from tests.support.programs.facade_enclaves import publish, records_of
from tests.support.waiting import until

FIELDS = (
    *("id", "domain", "verification_nonce", "cname_hash", "verified", "verified_at", "created_at"),
    *(
        "used_by",
        "used_by_containers",
        "txt_record_host",
        "txt_record_value",
        "cname_target",
        "cname_configured",
        "checked_at",
        "lost_at",
        "message",
    ),
)


async def entitled(world: FacadeInstallation) -> str:
    """Set a suffix of the organization, and return a host below it."""
    zone = f"{world.organization}.test"
    await world.change_organization(entitlements={"domainSuffixes": [zone]})
    return f"api-{uuid.uuid4().hex[:6]}.{zone}"


async def listed(world: FacadeInstallation) -> list[dict[str, Any]]:
    page = await world.kube.list(of(Domain), world.namespace)
    return list(page.items)


async def post(client: httpx.AsyncClient, host: str) -> httpx.Response:
    """Register a domain, as soon as the facade has seen the entitlement."""

    async def allowed() -> httpx.Response | None:
        answer = await client.post("/api/domains", json={"domain": host})
        return None if answer.status_code == 403 else answer

    answer = await until(allowed, what="an entitlement that the facade knows")
    assert answer is not None
    return answer


@pytest.mark.spec("3.3", "8.7", "8.8", "24.3", "24.8")
async def test_the_life_of_a_domain(facade: Facade, world: FacadeInstallation) -> None:
    host = await entitled(world)
    async with facade.client(world.key) as client:
        made, _ = await asyncio.gather(
            post(client, host), publish(world, host, records=records_of(host))
        )
        assert made.status_code == 201, made.text
        record = made.json()
        assert tuple(record) == FIELDS
        assert (record["verification_nonce"], record["cname_hash"]) == ("a" * 32, "b" * 32)
        assert record["txt_record_host"] == f"_cloister.{host}"
        assert (record["verified"], record["cname_configured"]) == (False, None)
        twice = await client.post("/api/domains", json={"domain": host})
        assert (twice.status_code, twice.json()["code"]) == (409, "CONFLICT")

        async def answer_the_request() -> None:
            async def requested() -> str | None:
                (found,) = await listed(world)
                annotations = found["metadata"].get("annotations", {})
                asked: str | None = annotations.get("cloister.dev/requested-at")
                return asked

            stamp = await until(requested, what="a request to look")
            seen = {"verified": True, "verifiedAt": "2026-03-01T12:00:00Z", "cnameConfigured": True}
            await publish(world, host, lastHandledRequest=stamp, **seen)

        looked, _ = await asyncio.gather(
            client.post(f"/api/domains/{host}/verify"), answer_the_request()
        )
        assert looked.status_code == 200, looked.text
        assert looked.json()["verified"] is True
        assert looked.json()["verified_at"] == "2026-03-01T12:00:00Z"
        assert (await client.get("/api/domains")).json() == [looked.json()]

        await client.post("/api/containers", json=world.body("web"))
        spec: dict[str, Any] = {"spec": {"customDomain": host}}
        await world.kube.merge_patch(of(Container), "web", spec, world.namespace)
        refused = await client.delete(f"/api/domains/{host}")
        assert (refused.status_code, refused.json()["used_by"]) == (409, ["web"])
        spec = {"spec": {"customDomain": None}}
        await world.kube.merge_patch(of(Container), "web", spec, world.namespace)
        assert (await client.delete(f"/api/domains/{host}")).status_code == 204
        assert (await client.get("/api/domains")).json() == []
        assert (await client.delete(f"/api/domains/{host}")).status_code == 404


@pytest.mark.spec("8.10")
@pytest.mark.parametrize(
    "host", ["", "UPPER.test", "https://a.test", "*.a.test", "a.test:443", "nodots", "a.other.test"]
)
async def test_a_domain_outside_of_the_suffix_is_refused(
    facade: Facade, world: FacadeInstallation, host: str
) -> None:
    await entitled(world)
    async with facade.client(world.key) as client:
        answer = await post(client, host)
        assert (answer.status_code, answer.json()["code"]) == (400, "BAD_REQUEST")
        assert answer.json()["details"][0]["field"] == "domain"


@pytest.mark.attack("foreign-domain")
async def test_a_name_below_the_domain_of_generated_names_is_refused(
    facade: Facade, world: FacadeInstallation
) -> None:
    await world.change_organization(entitlements={"domainSuffixes": [DOMAIN]})
    async with facade.client(world.key) as client:
        answer = await post(client, f"web.{world.organization}.{DOMAIN}")
        assert (answer.status_code, answer.json()["details"][0]["field"]) == (400, "domain")
        assert "whose names are generated" in answer.json()["error"]


@pytest.mark.spec("8.9")
async def test_without_the_entitlement_it_is_forbidden(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        answer = await client.post("/api/domains", json={"domain": "a.example.test"})
        assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")


async def test_a_domain_is_answered_with_its_records_or_503(
    facade: Facade, world: FacadeInstallation
) -> None:
    host = await entitled(world)
    async with facade.client(world.key) as client:
        waits = await post(client, host)
        assert (waits.status_code, waits.json()["code"]) == (503, "UNAVAILABLE")
        assert "send the same request again" in waits.json()["error"]
        assert waits.headers["retry-after"]
        await publish(world, host, records=records_of(host))
        made = await client.post("/api/domains", json={"domain": host})
        assert made.status_code == 201, made.text
        assert made.json()["cname_target"] == records_of(host)["cnameTarget"]
        again = await client.post("/api/domains", json={"domain": host})
        assert again.status_code == 409


async def test_another_organization_learns_nothing(
    facade: Facade, world: FacadeInstallation, other_world: FacadeInstallation
) -> None:
    host = await entitled(world)
    async with facade.client(world.key) as client, facade.client(other_world.key) as other:
        await asyncio.gather(post(client, host), publish(world, host, records=records_of(host)))
        assert (await other.get("/api/domains")).json() == []
        for answer in (
            await other.post(f"/api/domains/{host}/verify"),
            await other.delete(f"/api/domains/{host}"),
        ):
            assert answer.status_code == 404
