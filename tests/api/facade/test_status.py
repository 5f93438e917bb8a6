"""GET /api/containers/:id/status and /events; what the operator writes is written by the test."""

from typing import Any

import httpx
import pytest

from cloister_clients.kube.kinds import EVENT
from tests.support.programs.facade import Facade, FacadeInstallation
from tests.support.waiting import until

AT = "2026-11-22T05:00:00Z"
READY = {
    "type": "Ready",
    "status": "True",
    "reason": "Serving",
    "message": "v1.0.0 serves.",
    "lastTransitionTime": AT,
}


async def status_of(client: httpx.AsyncClient, path: str) -> tuple[dict[str, Any], str]:
    answer = await client.get(f"{path}/status")
    assert answer.status_code == 200, answer.text
    return answer.json(), answer.headers["etag"]


async def test_the_status_shows_conditions_and_both_enclaves_and_has_a_version(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        made = await client.post("/api/containers", json=world.body("web"))
        path = made.headers["location"]
        fresh, version = await status_of(client, path)
        assert (fresh["observed"], fresh["conditions"]) == (False, [])
        assert version.startswith("W/")
        serving = await world.enclave("web", name="web-a-1")
        update = {
            "enclave": "web-b-1",
            "uid": "0b",
            "revision": "b",
            "tag": "v1.1.0",
            "status": "started",
            "type": "blue_green",
        }
        await world.enclave("web", name="web-b-1")
        await world.report(
            "web", phase="ready", activeEnclave=serving, update=update, conditions=[READY]
        )

        async def both() -> tuple[dict[str, Any], str] | None:
            shown, at = await status_of(client, path)
            return (shown, at) if {"serving", "candidate"} <= shown.keys() else None

        found = await until(both, what="both enclaves")
        assert found is not None
        shown, version = found
        assert (shown["serving"]["enclave"], shown["candidate"]["enclave"]) == (
            "web-a-1",
            "web-b-1",
        )
        assert [each["meaning"] for each in shown["conditions"]] == [
            "The release that spec requests serves."
        ]
        stages = [{"name": "config", "status": "ok", "durationMs": 3}]
        await world.report_enclave("web-b-1", phase="Started", bootStages=stages)

        async def moved() -> bool:
            now, at = await status_of(client, path)
            return at != version and now["candidate"].get("phase") == "Started"

        await until(moved, what="another version with the stage of the boot")
        # It is the version of no object, so that nobody changes a container by it.
        stopped = await client.post(f"{path}/stop", headers={"If-Match": version})
        assert stopped.status_code == 412
        for name in ("web-a-1", "web-b-1"):
            await world.end_enclave(name)


@pytest.mark.attack("foreign-enclave")
async def test_an_enclave_of_another_container_is_not_shown(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        made = await client.post("/api/containers", json=world.body("web"))
        other = await client.post("/api/containers", json=world.body("other"))
        assert other.status_code == 201
        enclave = await world.enclave("other", name="other-a-1")
        await world.report("other", phase="ready", activeEnclave=enclave)
        await world.report("web", phase="ready", activeEnclave=enclave)

        async def cached() -> bool:
            return "serving" in (await status_of(client, other.headers["location"]))[0]

        await until(cached, what="the enclave")

        async def reported() -> bool:
            return bool((await status_of(client, made.headers["location"]))[0]["observed"])

        await until(reported, what="the status")
        assert "serving" not in (await status_of(client, made.headers["location"]))[0]
        await world.end_enclave(enclave)


async def test_a_gitops_tool_is_named_with_its_fields(
    facade: Facade, world: FacadeInstallation
) -> None:
    body = {
        "apiVersion": "cloister.dev/v1alpha1",
        "kind": "Container",
        "metadata": {"name": "owned"},
        "spec": {"repo": world.repo, "tag": "v1.0.0", "sshKeys": ["laptop"], "debug": True},
    }
    await world.apply_as("kustomize-controller", body)
    async with facade.client(world.key) as client:

        async def listed() -> str:
            found = (await client.get("/api/containers")).json()
            return next((each["id"] for each in found if each["name"] == "owned"), "")

        path = f"/api/containers/{await until(listed, what='the container')}"
        shown, _ = await status_of(client, path)
        assert shown["managed_by"] == [
            {"manager": "kustomize-controller", "fields": ["debug", "repo", "ssh_keys", "tag"]}
        ]


async def test_the_events_of_a_container_are_listed_newest_first(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        made = await client.post("/api/containers", json=world.body("web"))
        other = await client.post("/api/containers", json=world.body("other"))
        uid, path = made.json()["id"], made.headers["location"]
        assert (await client.get(f"{path}/events")).json() == []

        async def happened(about: str, number: int) -> None:
            body = {
                "metadata": {"name": f"{about}.{number}", "namespace": world.namespace},
                "eventTime": f"2026-11-22T05:{number // 60:02}:{number % 60:02}.000000Z",
                "reportingController": "cloister.dev/operator",
                "reportingInstance": "cloister.dev/operator",
                "action": "Reconcile",
                "reason": "Updating",
                "regarding": {
                    "apiVersion": "cloister.dev/v1alpha1",
                    "kind": "Container",
                    "name": "web",
                    "namespace": world.namespace,
                    "uid": about,
                },
                "note": f"event {number}",
                "type": "Normal",
            }
            await world.kube.create(EVENT, body, world.namespace)

        for number in range(105):
            await happened(uid, number)
        await happened(other.json()["id"], 1)
        answer = await client.get(f"{path}/events")
        assert answer.status_code == 200, answer.text
        listed = answer.json()
        assert [each["message"] for each in listed] == [
            f"event {number}" for number in reversed(range(5, 105))
        ]
        assert listed[0] == {
            "at": "2026-11-22T05:01:44Z",
            "type": "Normal",
            "reason": "Updating",
            "message": "event 104",
            "count": 1,
        }
