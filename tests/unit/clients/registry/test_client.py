"""The client of registries against servers that do not behave, on a socket."""

import hashlib
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import ValidationError

from cloister_clients.address_guard import Guard
from cloister_clients.registry import (
    Credentials,
    ImageNotFound,
    ManifestInvalid,
    RegistryClient,
    RegistryRateLimited,
    RegistryRefused,
    RegistrySettings,
    RegistryUnauthorized,
    RegistryUnavailable,
)
from tests.support.stand_ins.http_server import HttpServer, Reply, Request, serve

CONFIG = json.dumps({"os": "linux", "architecture": "amd64", "config": {"User": "7"}}).encode()


def digest(content: bytes) -> str:
    """Compute a digest."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def manifest(config: bytes = CONFIG, **more: Any) -> bytes:
    """Write the manifest of an image."""
    described = {
        "mediaType": "application/vnd.oci.image.config.v1+json",
        "digest": digest(config),
        "size": len(config),
        **more,
    }
    return json.dumps({"schemaVersion": 2, "config": described, "layers": []}).encode()


MANIFEST = manifest()
DIGEST = digest(MANIFEST)


def serving(**blobs: Reply) -> Callable[[Request], Reply]:
    """Return the manifest and, as ``manifests`` or ``blobs`` say, something else."""

    def answer(request: Request) -> Reply:
        kind = request.parts[-2]
        return blobs.get(kind, Reply(200, MANIFEST if kind == "manifests" else CONFIG))

    return answer


@asynccontextmanager
async def client_for(*servers: HttpServer, **more: Any) -> AsyncIterator[RegistryClient]:
    """Build a client that may call these servers."""
    hosts = [server.host for server in servers]
    settings = {"allow_private": hosts, "plain_http": hosts, **more}
    client = RegistryClient(RegistrySettings.model_validate(settings))
    try:
        yield client
    finally:
        await client.aclose()


async def test_content_is_compared_with_its_digest() -> None:
    for kind in ("manifests", "blobs"):
        with serve(serving(**{kind: Reply(200, CONFIG + b" ")})) as server:
            async with client_for(server) as client:
                with pytest.raises(RegistryUnavailable, match="whose digest is not sha256:"):
                    await client.resolve(f"{server.host}/a/b@{DIGEST}")


async def test_storage_on_another_host_sees_no_credentials() -> None:
    credentials = Credentials(("127.0.0.1:*",), "user", "secret")
    with serve(lambda request: Reply(200, CONFIG)) as storage:

        def answer(request: Request) -> Reply:
            if "authorization" not in request.headers:
                return Reply(401, headers={"WWW-Authenticate": 'Basic realm="x"'})
            if request.parts[-2] == "blobs":
                return Reply(307, headers={"Location": f"{storage.base}/signed?key=1"})
            return Reply(200, MANIFEST)

        with serve(answer) as server:
            credentials = Credentials((server.host,), "user", "secret")
            async with client_for(server, storage) as client:
                found = await client.resolve(f"{server.host}/a/b@{DIGEST}", credentials=credentials)
            assert found.user == "7"
            assert server.requests[-1].headers["authorization"].startswith("Basic ")
        assert [request.path for request in storage.requests] == ["/signed"]
        assert "authorization" not in storage.requests[0].headers


@pytest.mark.parametrize(
    "target",
    ["http://169.254.169.254/latest", "https://127.0.0.1:1/", "http://a.test/", "file:///x"],
)
async def test_a_redirect_to_a_private_address_is_refused(target: str) -> None:
    with serve(serving(blobs=Reply(307, headers={"Location": target}))) as server:
        async with client_for(server) as client:
            with pytest.raises(RegistryRefused, match="is not called"):
                await client.resolve(f"{server.host}/a/b@{DIGEST}")


async def test_a_token_server_at_a_private_address_is_refused() -> None:
    challenge = 'Bearer realm="http://169.254.169.254/token",service="x"'
    reply = Reply(401, headers={"WWW-Authenticate": challenge})
    with serve(serving(manifests=reply)) as server:
        async with client_for(server) as client:
            with pytest.raises(RegistryRefused, match="setting plainHttp"):
                await client.resolve(f"{server.host}/a/b@{DIGEST}")


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(404), ImageNotFound),
        (Reply(403), RegistryUnauthorized),
        (Reply(401), RegistryUnauthorized),
        (Reply(401, headers={"WWW-Authenticate": "Negotiate"}), RegistryUnauthorized),
        (
            Reply(401, headers={"WWW-Authenticate": 'Bearer realm="http://a:b"'}),
            RegistryUnavailable,
        ),
        (Reply(429, headers={"Retry-After": "9"}), RegistryRateLimited),
        (Reply(500), RegistryUnavailable),
        (Reply(502, headers={"Retry-After": "9"}), RegistryUnavailable),
        (Reply(307, headers={"Location": "/again"}), RegistryUnavailable),
        (Reply(307, headers={"Location": "http://a:b"}), RegistryUnavailable),
        (Reply(304), RegistryUnavailable),
        (Reply(200, b"x" * 4194305), ManifestInvalid),
        (Reply(200, b"<html>"), RegistryUnavailable),
        (
            Reply(200, MANIFEST, {"Content-Length": "99999", "Connection": "close"}),
            RegistryUnavailable,
        ),
    ],
)
async def test_each_response_of_a_registry_has_its_error(
    reply: Reply, error: type[Exception]
) -> None:
    with serve(lambda request: reply) as server:
        async with client_for(server) as client:
            credentials = Credentials((server.host,), "user", "secret")
            with pytest.raises(error) as caught:
                await client.resolve(f"{server.host}/a/b@{DIGEST}", credentials=credentials)
    assert type(caught.value) is error
    assert server.host in str(caught.value)
    assert "secret" not in str(caught.value)
    if "Retry-After" in reply.headers:
        assert isinstance(caught.value, RegistryUnavailable)
        assert caught.value.retry_after == 9


async def test_a_configuration_beyond_its_limit_is_not_read() -> None:
    for size in (1048577, 10):
        large = manifest(b"x" * 1048577, size=size)
        reply = Reply(200, large)
        blob = Reply(200, b"x" * 1048577)
        with serve(serving(manifests=reply, blobs=blob)) as server:
            async with client_for(server) as client:
                with pytest.raises(ManifestInvalid, match=r"maxConfigBytes|beyond 1048576 bytes"):
                    await client.resolve(f"{server.host}/a/b@{digest(large)}")
            assert len(server.requests) == (1 if size > 10 else 2)


async def test_a_registry_that_does_not_end_is_left_in_time() -> None:
    end = threading.Event()

    def stuck(request: Request) -> Reply:
        end.wait(60)
        return Reply(404)

    with serve(stuck) as server:
        async with client_for(server, total_seconds=0.2) as client:
            with pytest.raises(RegistryUnavailable, match=r"longer than 0\.2 seconds"):
                await client.resolve(f"{server.host}/a/b@{DIGEST}")
        async with client_for(server, timeout_seconds=0.2) as client:
            with pytest.raises(RegistryUnavailable, match="did not respond"):
                await client.exists(f"{server.host}/a/b@{DIGEST}")
        end.set()


async def test_a_registry_that_is_not_there_is_transient() -> None:
    settings = {"allow_private": ["127.0.0.1"], "plain_http": ["127.0.0.1"]}
    client = RegistryClient(RegistrySettings.model_validate(settings))
    with pytest.raises(RegistryUnavailable, match=r"127\.0\.0\.1:1 did not respond") as caught:
        await client.resolve(f"127.0.0.1:1/a/b@{DIGEST}")
    assert caught.value.transient
    await client.aclose()


async def test_docker_hub_is_served_by_another_host() -> None:
    asked: list[str] = []

    async def resolver(host: str) -> tuple[str, ...]:
        asked.append(host)
        return ()

    client = RegistryClient(RegistrySettings(), guard=Guard(resolver=resolver))
    for image in ("nginx", "ghcr.io/a/b"):
        with pytest.raises(RegistryUnavailable, match="has no address"):
            await client.resolve(f"{image}@{DIGEST}")
    assert asked == ["registry-1.docker.io", "ghcr.io"]
    await client.aclose()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"mirrors": {"docker.io": ["mirror.test"]}}, "is not an address; write https://host"),
        ({"mirrors": {"docker.io": ["https://u:p@mirror.test"]}}, "without credentials"),
        ({"mirrors": {"docker.io": ["https://a:b"]}}, "is not an address"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_settings_that_do_not_fit_are_named(data: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        RegistrySettings.model_validate(data)


@pytest.mark.parametrize(("named", "sent"), [(False, 0), (True, 1)])
async def test_a_token_server_elsewhere_gets_credentials_only_when_it_is_named(
    *, named: bool, sent: int
) -> None:
    with serve(lambda request: Reply(200, b'{"token": "t"}')) as tokens:

        def answer(request: Request) -> Reply:
            if "authorization" not in request.headers:
                challenge = f'Bearer realm="{tokens.base}/token",service="x"'
                return Reply(401, headers={"WWW-Authenticate": challenge})
            return serving()(request)

        with serve(answer) as server:
            hosts = [tokens.host] if named else []
            reference = f"{server.host}/a/b@{DIGEST}"
            async with client_for(server, tokens, token_hosts=hosts) as client:
                assert (await client.resolve(reference)).user == "7"
                assert "authorization" not in tokens.requests.pop().headers
                credentials = Credentials((server.host,), "user", "secret")
                if named:
                    found = await client.resolve(reference, credentials=credentials)
                    assert found.user == "7"
                    assert tokens.requests[0].headers["authorization"].startswith("Basic ")
                else:
                    with pytest.raises(RegistryRefused, match=r"setting registry\.tokenHosts"):
                        await client.resolve(reference, credentials=credentials)
    assert len(tokens.requests) == sent
