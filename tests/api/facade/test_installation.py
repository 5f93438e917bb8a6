"""The settings that the facade has from the operator: it waits for them, and holds no others."""

import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from cloister_clients.kube.kinds import CONFIG_MAP, of
from cloister_crds.installation import CONFIG_MAP_NAME
from cloister_crds.kinds import Container, Deployment
from dev.cluster import Cluster
from dev.plain_http import NO_TRUST
from tests.support.cluster.clusters import unique
from tests.support.programs.facade import (
    COMMAND,
    DOMAIN,
    Facade,
    FacadeInstallation,
    config_file,
    printed_address,
    start_facade,
)
from tests.support.programs.published_settings import publish
from tests.support.waiting import until, until_sync


def started(settings: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start a facade that is not ready."""
    with log.open("wb") as sink:
        return subprocess.Popen(
            [str(COMMAND), "api", "--config", str(settings)],
            stdout=sink,
            stderr=subprocess.STDOUT,
        )


@pytest.mark.spec("6.3")
async def test_without_the_operators_settings_nothing_is_judged(
    api_cluster: Cluster, world: FacadeInstallation
) -> None:
    namespace = unique("operator")
    publish(api_cluster, DOMAIN, namespace=namespace)
    await world.kube.delete(CONFIG_MAP, CONFIG_MAP_NAME, namespace)
    settings = {**yaml.safe_load(world.settings.read_text()), "operatorNamespace": namespace}
    path = world.settings.with_name(f"{namespace}.yml")
    path.write_text(yaml.safe_dump(settings))
    log = path.with_suffix(".log")
    process = started(path, log)
    try:
        base = until_sync(lambda: printed_address(process, log), what="the facade's address")

        def waits() -> bool:
            """Return whether the facade knows what it waits for; before it has not listed."""
            # It listens before it has started, and responds only then.
            answer = httpx.get(f"{base}/readyz", timeout=60, verify=NO_TRUST)
            assert answer.status_code == 503, answer.text
            return f"{namespace}/{CONFIG_MAP_NAME}" in answer.text

        until_sync(waits, what="the reason")
        async with Facade(process, base, log).client(world.key) as client:
            assert (await client.get("/healthz")).status_code == 200
            check = {"api_key": "x"}
            for answer in (
                await client.get("/api/containers"),
                await client.post("/api/containers", json=world.body("web")),
                await client.post("/api/shim/validate-key", json=check),
                await client.get("/v1/models"),
            ):
                assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")
                assert int(answer.headers["retry-after"]) > 0
                assert f"{namespace}/{CONFIG_MAP_NAME}" in answer.json()["error"]
            publish(api_cluster, DOMAIN, namespace=namespace)

            async def serves() -> bool:
                return (await client.get("/api/containers")).status_code == 200

            await until(serves, what="the facade to serve")
            publish(api_cluster, "other.test", namespace=namespace)
            until_sync(lambda: process.poll() is not None, what="the facade to end")
        assert "the operator's settings changed" in log.read_text()
    finally:
        process.kill()
        process.wait(30)


@pytest.mark.spec("6.3", "7.1")
async def test_the_facade_judges_by_the_operators_settings(
    api_cluster: Cluster, world: FacadeInstallation
) -> None:
    namespace = unique("operator")
    publish(
        api_cluster,
        DOMAIN,
        namespace=namespace,
        strict_from="0.11.0",
        platform="linux/arm64",
        file_names=("other.yml",),
        max_file_bytes=300 * 1024,
        ignore_repository_case=True,
    )
    settings = {**yaml.safe_load(world.settings.read_text()), "operatorNamespace": namespace}
    path = world.settings.with_name(f"{namespace}.yml")
    path.write_text(yaml.safe_dump(settings))
    strict = config_file(world.image, extra={"cvm-version": "0.11.0"})
    strict = strict.replace(b"  env:", b"  ipc: host\n  env:")
    for tag, file in {
        "plain": config_file(world.image),
        "strict": strict,
        "large": strict + b"#" * 290 * 1024,
        "larger": strict + b"#" * 300 * 1024,
    }.items():
        world.repository.tag(tag, world.repository.commit({"other.yml": file}))

    with start_facade(path) as facade:
        await world.await_cached_by(facade)
        async with facade.client(world.key) as client:

            async def codes(tag: str) -> dict[str, str]:
                body = {"repo": world.repo, "tag": tag}
                verdict: dict[str, Any] = (
                    await client.post("/api/containers/validate", json=body)
                ).json()
                return {each["code"]: each["message"] for each in verdict["errors"]}

            plain = await codes("plain")
            assert plain.keys() == {"PlatformMissing"}
            assert "linux/arm64" in plain["PlatformMissing"]
            assert (await codes("strict")).keys() == {"RefusedByStrictRules"}
            assert (await codes("large")).keys() == {"RefusedByStrictRules"}
            assert (await codes("larger")).keys() == {"ConfigFileTooLarge"}
            assert (await codes("v1.0.0")).keys() == {"ConfigFileNotFound"}
            await spellings_are_one(world, client)


async def spellings_are_one(world: FacadeInstallation, client: httpx.AsyncClient) -> None:
    """Check that two spellings of a repository have one deployment, and its secrets."""
    other = f"{world.organization}/Web"
    namespace = {"namespace": world.namespace}
    first = {"metadata": {"name": "first", **namespace}, "spec": {"repo": world.repo}}
    await world.kube.create(of(Deployment), Deployment.read(first).manifest())
    for name, repo in (("a", world.repo), ("b", other)):
        body = {"metadata": {"name": name, **namespace}, "spec": {"repo": repo, "tag": "v1"}}
        await world.kube.create(of(Container), Container.read(body).manifest())

    async def counted() -> Any:
        found = (await client.get("/api/deployments")).json()
        return found if found and found[0]["instance_count"] == 2 else None

    (deployment,) = await until(counted)
    assert deployment["repo"] == world.repo
    containers = (await client.get("/api/containers")).json()
    assert {each["name"]: each["repo"] for each in containers} == {"a": world.repo, "b": other}
    assert {each["deployment_id"] for each in containers} == {deployment["id"]}

    secret = {"name": "API_KEY", "value": "x", "repo": other}
    made = (await client.post("/api/secrets", json=secret)).json()
    assert (made["repo"], made["used_by"]) == (other, ["a", "b"])
    taken = await client.post("/api/secrets", json={**secret, "repo": world.repo})
    assert taken.status_code == 409
