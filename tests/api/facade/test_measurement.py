"""GET /api/containers/:id/measurement: what the operator published, and nothing else."""

import base64
import hashlib
import json
import uuid
from typing import Any

import httpx
import pytest

from cloister_clients.kube.kinds import CONFIG_MAP, of
from cloister_crds.config import parse
from cloister_crds.kinds import Container, Enclave
from cloister_crds.kinds.host import HostSpec
from cloister_crds.measurement import Measurement, PlatformImages, entries, measure
from cloister_crds.names import config_map_name
from tests.support.programs.facade import Facade, FacadeInstallation, config_file

IMAGES = PlatformImages(guest=f"guest@sha256:{'1' * 64}", shim=f"shim@sha256:{'2' * 64}")
DOCUMENTS = {"container-0.json": '{"name":"web"}'}
SNP = HostSpec.model_validate(
    {
        "tee": "SNP",
        "teeUnit": "Pod",
        "runtimeClassName": "kata-qemu-snp",
        "initdata": [{"name": "policy.rego", "content": "package agent_policy\n"}],
    }
)


def measurement(world: FacadeInstallation, host: HostSpec, *, debug: bool = False) -> Measurement:
    """Measure the release of these tests as the operator does."""
    parsed = parse(config_file(world.image))
    assert parsed.config is not None
    return measure(
        parsed.config,
        parsed.digest,
        host=host,
        images=IMAGES,
        documents=DOCUMENTS,
        service="cloister",
        debug=debug,
        gpus=None,
    )


async def seen(world: FacadeInstallation, container: str) -> dict[str, str]:
    """Return the header that makes a read show a container as it is now."""
    item = await world.container(container)
    assert item is not None
    return {"X-Consistency-Token": item["metadata"]["resourceVersion"]}


async def serve(world: FacadeInstallation, container: str, data: dict[str, str]) -> dict[str, str]:
    """Create the active enclave with its ConfigMap, as the operator does, and return headers."""
    name = await world.enclave(container)
    owner = Enclave.read(await world.kube.get(of(Enclave), name, world.namespace))
    metadata = {"name": config_map_name(name), "ownerReferences": [owner.owner_reference()]}
    body = {"metadata": metadata, "immutable": True, "data": data}
    await world.kube.create(CONFIG_MAP, body, world.namespace)
    await world.report(container, phase="ready", activeEnclave=name)
    return await seen(world, container)


async def created(
    client: httpx.AsyncClient, world: FacadeInstallation, name: str, **more: bool
) -> str:
    """Create a container and return the path of its measurement."""
    made = await client.post("/api/containers", json=world.body(name, **more))
    assert made.status_code == 201, made.text
    return f"{made.headers['location']}/measurement"


@pytest.mark.spec("21.15")
async def test_the_published_bytes_and_their_digests(
    facade: Facade, world: FacadeInstallation
) -> None:
    found = measurement(world, SNP)
    async with facade.client(world.key) as client:
        path = await created(client, world, "web")
        now = await serve(world, "web", {"unmeasured.json": "{}", **DOCUMENTS, **entries(found)})
        answer = await client.get(path, headers=now)
    assert answer.status_code == 200, answer.text
    shown = answer.json()
    assert found.initdata is not None
    assert shown == {
        "repo": world.repo,
        "tag": "v1.0.0",
        "commit": world.repository.git("rev-parse", "v1.0.0"),
        "config_file": "service-config.yml",
        "digest": found.digest,
        "document": found.document.wire(),
        "documents": DOCUMENTS,
        "initdata": {"digest": found.initdata.digest, "toml": found.initdata.text.decode()},
    }
    written = json.dumps(shown["document"], sort_keys=True, separators=(",", ":")).encode()
    assert shown["digest"] == f"sha256:{hashlib.sha256(written).hexdigest()}"
    toml = shown["initdata"]["toml"].encode()
    assert shown["initdata"]["digest"] == f"sha256:{hashlib.sha256(toml).hexdigest()}"


@pytest.mark.spec("2.9")
async def test_a_debug_container_is_another(facade: Facade, world: FacadeInstallation) -> None:
    plain = HostSpec()
    async with facade.client(world.key) as client:
        production, debug = (
            await created(client, world, "web"),
            await created(client, world, "web", debug=True),
        )
        await serve(world, "web", entries(measurement(world, plain)))
        now = await serve(world, "web.debug", entries(measurement(world, plain, debug=True)))
        paths = (production, debug)
        answers = [(await client.get(path, headers=now)).json() for path in paths]
    assert [each["document"]["debug"] for each in answers] == [False, True]
    assert answers[0]["digest"] != answers[1]["digest"]
    assert all("initdata" not in each for each in answers)


@pytest.mark.spec("21.15")
async def test_without_an_active_enclave_there_is_no_measurement(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        path = await created(client, world, "web")
        waiting = await client.get(path)
        await world.report("web", phase="ready", activeEnclave="web-gone-1")
        gone = await client.get(path, headers=await seen(world, "web"))
        now = await serve(world, "web", {"shim.json": "{}"})
        old = await client.get(path, headers=now)
        unknown = await client.get(f"/api/containers/{uuid.uuid4()}/measurement")
        malformed = await client.get("/api/containers/web/measurement")
    for answer, word in (
        (waiting, "no enclave is active"),
        (gone, "gone"),
        (old, "relaunch the container"),
    ):
        assert answer.status_code == 404, answer.text
        assert answer.json()["code"] == "NOT_FOUND"
        assert word in answer.json()["error"]
    assert (unknown.status_code, malformed.status_code) == (404, 404)


async def test_a_config_map_of_another_is_not_believed(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        path = await created(client, world, "web")
        name = await world.enclave("web")
        data = entries(measurement(world, SNP))
        body = {"metadata": {"name": config_map_name(name)}, "data": data}
        await world.kube.create(CONFIG_MAP, body, world.namespace)
        await world.report("web", phase="ready", activeEnclave=name)
        answer = await client.get(path, headers=await seen(world, "web"))
        assert (answer.status_code, "relaunch" in answer.json()["error"]) == (404, True)


async def test_anothers_container_has_none(
    facade: Facade, world: FacadeInstallation, other_world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client, facade.client(other_world.key) as other:
        path = await created(client, world, "web")
        now = await serve(world, "web", entries(measurement(world, SNP)))
        assert (await client.get(path, headers=now)).status_code == 200
        assert (await other.get(path)).status_code == 404


async def publish(
    world: FacadeInstallation, name: str, found: Measurement | None, file: bytes
) -> None:
    """Create the ConfigMap of an enclave, as the operator does."""
    owner = Enclave.read(await world.kube.get(of(Enclave), name, world.namespace))
    metadata = {"name": config_map_name(name), "ownerReferences": [owner.owner_reference()]}
    body = {
        "metadata": metadata,
        "data": entries(found) if found is not None else {},
        "binaryData": {"config.yml": base64.b64encode(file).decode()},
    }
    await world.kube.create(CONFIG_MAP, body, world.namespace)


@pytest.mark.spec("21.21")
async def test_an_update_is_compared_with_what_serves(
    facade: Facade, world: FacadeInstallation
) -> None:
    update = {
        "enclave": "",
        "uid": str(uuid.uuid4()),
        "revision": "r",
        "tag": "v1.1.0",
        "status": "deploying",
        "type": "blue_green",
    }
    async with facade.client(world.key) as client:
        container = (await created(client, world, "web")).removesuffix("/measurement")
        path, file = f"{container}/update/diff", config_file(world.image)

        async def diff() -> dict[str, Any]:
            answer = await client.get(path, headers=await seen(world, "web"))
            assert answer.status_code == 200, answer.text
            found: dict[str, Any] = answer.json()
            return found

        assert await diff() == {"has_update": False}
        await world.report("web", phase="deploying", update=update)
        found = await diff()
        assert "changes" not in found
        assert "nothing serves" in found["reason"]
        old = await world.enclave("web", name="web-old-1")
        await world.report("web", phase="ready", activeEnclave=old, update=update)
        found = await diff()
        assert found["serving"]["enclave"] == old
        assert "the update has no enclave" in found["reason"]
        patch = {"spec": {"tag": "v1.1.0", "variables": [{"name": "A", "value": "1"}]}}
        await world.kube.merge_patch(of(Container), "web", patch, world.namespace)
        new = await world.enclave("web", name="web-new-1")
        await world.report("web", update={**update, "enclave": new}, candidate=new)
        found = await diff()
        assert found["not_compared"] == ["file", "measurement"]
        changed = {(each["part"], each["field"]): each for each in found["changes"]}
        assert (
            changed["release", "tag"] | {"before": '"v1.0.0"', "after": '"v1.1.0"'}
            == changed["release", "tag"]
        )
        assert ("request", "variables[A]") in changed
        await publish(world, old, measurement(world, SNP), file)
        larger = file.replace(b"cpus: 2", b"cpus: 4")
        assert larger != file
        await publish(world, new, measurement(world, SNP, debug=True), larger)
        found = await diff()
        assert (found["not_compared"], found["more_changes"]) == ([], 0)
        assert {"part": "file", "field": "cpus", "before": "2", "after": "4"} in found["changes"]
        assert {
            "part": "measurement",
            "field": "debug",
            "before": "false",
            "after": "true",
        } in found["changes"]
        assert "| <code>cpus</code> | <code>2</code> | <code>4</code> |" in found["markdown"]
