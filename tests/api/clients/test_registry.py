"""The client of registries against a real registry, open, with passwords, with tokens, over TLS."""

import base64
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cloister_clients.registry import (
    Credentials,
    ImageNotFound,
    ManifestInvalid,
    Platform,
    PlatformMissing,
    RegistryClient,
    RegistryRateLimited,
    RegistryRefused,
    RegistrySettings,
    RegistryUnauthorized,
    RegistryUnavailable,
)
from tests.support.builders.certificates import certificate
from tests.support.servers.registry import (
    Registry,
    image_config,
    image_index,
    image_manifest,
    registry,
)
from tests.support.servers.registry_tokens import TokenServer, token_server
from tests.support.stand_ins.http_server import Reply, serve
from tests.support.waiting import until

CONFIG = {
    "Entrypoint": ["/app", "serve"],
    "Cmd": ["--port", "80"],
    "Env": ["PATH=/bin", "A=b=c"],
    "User": "1000:1000",
    "WorkingDir": "/srv",
    "StopSignal": "SIGINT",
}
PASSWORD_FILE = "user:$2b$05$cloistertestregistrysOajaVRXcXDYCkWyYxvGUBw4u3lgwsV2m\n"
"""The user `user` with the password `right`, in bcrypt, the one form that the registry reads."""

MISSING = "sha256:" + "0" * 64


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@asynccontextmanager
async def client_for(*hosts: str, **more: object) -> AsyncIterator[RegistryClient]:
    """Build a client that may call these hosts without TLS."""
    settings = {"allow_private": hosts, "plain_http": hosts, "token_hosts": hosts, **more}
    client = RegistryClient(RegistrySettings.model_validate(settings))
    try:
        yield client
    finally:
        await client.aclose()


async def test_an_image_is_resolved_with_its_configuration(opened: Registry) -> None:
    pushed = opened.image("acme/app", tag="1.2", config=CONFIG)
    reference = f"{opened.host}/acme/app:1.2@{pushed.digest}"
    async with client_for(opened.host) as client:
        found = await client.resolve(reference)
        assert await client.exists(reference)
    assert found.reference == f"{opened.host}/acme/app@{pushed.digest}"
    assert found.manifest_digest == pushed.digest
    assert found.entrypoint == ("/app", "serve")
    assert found.cmd == ("--port", "80")
    assert found.env == ("PATH=/bin", "A=b=c")
    assert (found.user, found.working_dir, found.stop_signal) == ("1000:1000", "/srv", "SIGINT")
    assert found.size == len(b"layer") + len(image_config("amd64", CONFIG))


async def test_an_image_without_settings_has_none(opened: Registry) -> None:
    pushed = opened.image("acme/bare", config={"Entrypoint": [], "Cmd": None})
    async with client_for(opened.host) as client:
        found = await client.resolve(f"{opened.host}/acme/bare@{pushed.digest}")
    assert (found.entrypoint, found.cmd, found.env) == (None, None, ())
    assert (found.user, found.working_dir, found.stop_signal) == ("", "", "")


async def test_a_tag_is_looked_up(opened: Registry) -> None:
    pushed = opened.image("acme/tagged", tag="v1", config=CONFIG)
    async with client_for(opened.host) as client:
        found = await client.resolve(f"{opened.host}/acme/tagged:v1")
        assert found.reference == f"{opened.host}/acme/tagged@{pushed.digest}"
        with pytest.raises(ImageNotFound):
            await client.resolve(f"{opened.host}/acme/tagged")


async def test_what_is_missing_is_not_found(opened: Registry) -> None:
    opened.image("acme/app")
    async with client_for(opened.host) as client:
        for name in ("acme/app", "acme/none"):
            reference = f"{opened.host}/{name}@{MISSING}"
            with pytest.raises(ImageNotFound, match="check repository and digest") as caught:
                await client.resolve(reference)
            assert not caught.value.transient
            assert not await client.exists(reference)


async def test_an_index_leads_to_the_image_of_the_platform(opened: Registry) -> None:
    amd = opened.image("acme/many", architecture="amd64", config=CONFIG)
    arm = opened.image("acme/many", architecture="arm64")
    index = opened.manifest(
        "acme/many",
        image_index({"unknown/unknown": arm, "linux/arm64/v8": arm, "linux/amd64": amd}),
    )
    reference = f"{opened.host}/acme/many@{index.digest}"
    async with client_for(opened.host) as client:
        found = await client.resolve(reference)
        assert (found.reference, found.manifest_digest) == (reference, amd.digest)
        assert found.entrypoint == ("/app", "serve")
        other = await client.resolve(reference, platform=Platform("linux", "arm64"))
        assert other.manifest_digest == arm.digest
        with pytest.raises(PlatformMissing, match="for linux/amd64, linux/arm64; build and push"):
            await client.resolve(reference, platform=Platform("linux", "riscv64"))


async def test_an_image_of_another_platform_is_refused(opened: Registry) -> None:
    pushed = opened.image("acme/arm", architecture="arm64")
    async with client_for(opened.host) as client:
        with pytest.raises(PlatformMissing, match="built for linux/arm64, not for linux/amd64"):
            await client.resolve(f"{opened.host}/acme/arm@{pushed.digest}")


async def test_what_is_no_container_image_is_refused(opened: Registry) -> None:
    chart = opened.blob("acme/chart", b"{}", "application/vnd.cncf.helm.config.v1+json")
    pushed = opened.manifest("acme/chart", image_manifest(chart))
    inner = opened.manifest("acme/chart", image_index({"linux/amd64": pushed}))
    outer = opened.manifest("acme/chart", image_index({"linux/amd64": inner}))
    async with client_for(opened.host) as client:
        with pytest.raises(ManifestInvalid, match=r"not a container image: .*helm"):
            await client.resolve(f"{opened.host}/acme/chart@{pushed.digest}")
        with pytest.raises(ManifestInvalid, match="index of indexes"):
            await client.resolve(f"{opened.host}/acme/chart@{outer.digest}")


async def test_the_guard_keeps_the_client_from_private_addresses(opened: Registry) -> None:
    pushed = opened.image("acme/app")
    reference = f"{opened.host}/acme/app@{pushed.digest}"
    async with client_for(opened.host, allow_private=()) as client:
        with pytest.raises(RegistryRefused, match="setting allowPrivate"):
            await client.resolve(reference)
    # Without its name in plain_http the registry is called by TLS, which it does not speak.
    async with client_for(opened.host, plain_http=()) as client:
        with pytest.raises(RegistryUnavailable, match="did not respond"):
            await client.resolve(reference)


async def test_a_registry_with_passwords(tmp_path: Path) -> None:
    passwords = tmp_path / "htpasswd"
    passwords.write_text(PASSWORD_FILE)
    auth = {"htpasswd": {"realm": "test", "path": str(passwords)}}
    with registry(tmp_path / "registry", auth=auth) as running:
        running.authorization = _basic("user", "right")
        pushed = running.image("acme/private", config=CONFIG)
        reference = f"{running.host}/acme/private@{pushed.digest}"
        async with client_for(running.host) as client:
            with pytest.raises(RegistryUnauthorized, match="wants credentials and there are none"):
                await client.resolve(reference)
            wrong = Credentials((running.host,), "user", "wrong-secret")
            with pytest.raises(RegistryUnauthorized, match="may read it") as caught:
                await client.resolve(reference, credentials=wrong)
            assert "wrong-secret" not in str(caught.value)
            right = Credentials((running.host,), "user", "right")
            assert (await client.resolve(reference, credentials=right)).user == "1000:1000"
            # What was kept for one asker opens nothing for another.
            with pytest.raises(RegistryUnauthorized):
                await client.resolve(reference)
            elsewhere = Credentials(("ghcr.io",), "user", "right")
            with pytest.raises(RegistryUnauthorized, match="there are none for it"):
                await client.resolve(reference, credentials=elsewhere)


async def test_a_registry_with_tokens(tmp_path: Path) -> None:
    server = TokenServer(certificate(tmp_path / "tokens"), {"user": "right"}, {"acme/public"})
    with (
        token_server(server) as tokens,
        registry(tmp_path / "registry", auth=tokens.auth()) as running,
    ):
        assert tokens.served is not None
        digests = {}
        for name in ("acme/public", "acme/private"):
            access = {"type": "repository", "name": name, "actions": ["pull", "push"]}
            running.authorization = f"Bearer {tokens.token('user', [access])}"
            digests[name] = running.image(name, config=CONFIG).digest
        public = f"{running.host}/acme/public@{digests['acme/public']}"
        private = f"{running.host}/acme/private@{digests['acme/private']}"
        right = Credentials((running.host,), "user", "right")
        async with client_for(running.host, tokens.served.host) as client:
            assert (await client.resolve(public)).user == "1000:1000"
            assert len(tokens.requests) == 1, "one token opens manifest and configuration"
            assert tokens.requests[0].parameters == {
                "service": ["test-registry"],
                "scope": ["repository:acme/public:pull"],
            }
            await client.resolve(public)
            assert len(tokens.requests) == 1, "a token is kept while it is good"
            with pytest.raises(RegistryUnauthorized, match="make the image public"):
                await client.resolve(private)
            assert (await client.resolve(private, credentials=right)).user == "1000:1000"
            with pytest.raises(RegistryUnauthorized):
                await client.resolve(private)
            wrong = Credentials((running.host,), "user", "wrong")
            with pytest.raises(RegistryUnauthorized, match="refused the credentials"):
                await client.resolve(private, credentials=wrong)
        await _check_tokens_end(running, tokens, public)
        await _check_faults(running, tokens, public)


async def _check_tokens_end(running: Registry, tokens: TokenServer, public: str) -> None:
    """Check that a token at its end is not used again."""
    assert tokens.served is not None
    tokens.life = 5
    before = len(tokens.requests)
    async with client_for(running.host, tokens.served.host) as client:
        await client.resolve(public)
        asked = len(tokens.requests) - before
        assert asked == 2, "a token whose end is near serves one request alone"


async def _check_faults(running: Registry, tokens: TokenServer, public: str) -> None:
    """Check what the answers of a token server mean."""
    assert tokens.served is not None
    async with client_for(running.host, tokens.served.host) as client:
        for reply, error in (
            (Reply(429, headers={"Retry-After": "5"}), RegistryRateLimited),
            (Reply(500), RegistryUnavailable),
            (Reply(200, b"{}"), RegistryUnavailable),
            (Reply(200, b"["), RegistryUnavailable),
            (Reply(200, b'{"token": "a\\nb"}'), RegistryUnavailable),
            (Reply(403), RegistryUnauthorized),
        ):
            tokens.fault = reply
            with pytest.raises(error) as caught:
                await client.resolve(public)
            assert type(caught.value) is error
    async with client_for(running.host) as client:
        with pytest.raises(RegistryRefused, match="setting"):
            await client.resolve(public)


async def test_a_registry_over_tls_is_trusted_by_its_authority(tmp_path: Path) -> None:
    made = certificate(tmp_path / "tls")
    with registry(tmp_path / "registry", tls=made) as running:
        pushed = running.image("acme/app", config=CONFIG)
        reference = f"{running.host}/acme/app@{pushed.digest}"
        async with client_for(running.host, plain_http=(), ca_file=made.file) as client:
            assert (await client.resolve(reference)).user == "1000:1000"
        async with client_for(running.host, plain_http=()) as client:
            with pytest.raises(RegistryUnavailable, match=r"(?i)certificate"):
                await client.resolve(reference)


async def test_an_image_that_a_mirror_has_is_there_without_its_registry(opened: Registry) -> None:
    """As where there is no way to the registry; a tag is the registry's to say."""
    pushed = opened.image("acme/carried", tag="v1")
    gone = "127.0.0.1:1"
    async with client_for(opened.host, gone, mirrors={gone: [opened.base]}) as client:
        assert await client.exists(f"{gone}/acme/carried@{pushed.digest}")
        with pytest.raises(RegistryUnavailable):
            await client.exists(f"{gone}/acme/carried:v1")


async def test_registry_mirrors_are_tried_first_and_may_fail(
    opened: Registry, tmp_path: Path
) -> None:
    pushed = opened.image("acme/mirrored", config=CONFIG)
    reference = f"{opened.host}/acme/mirrored@{pushed.digest}"
    with (
        registry(tmp_path / "mirror", proxy=opened.base) as mirror,
        serve(lambda request: Reply(200, b"{}")) as lying,
    ):
        mirrors = {opened.host: [f"{lying.base}/", "http://127.0.0.1:1", mirror.base]}
        hosts = (opened.host, mirror.host, lying.host, "127.0.0.1:1")
        credentials = Credentials((opened.host,), "user", "secret")
        async with client_for(*hosts, mirrors=mirrors) as client:
            found = await client.resolve(reference, credentials=credentials)
            assert found.user == "1000:1000"
        assert lying.requests
        assert all("authorization" not in request.headers for request in lying.requests)
        assert lying.requests[0].parameters == {"ns": [opened.host]}

        async def told() -> bool:
            return "acme/mirrored/manifests" in mirror.log.read_text()

        await until(told, what="the request in the mirror's log")
        async with client_for(
            opened.host, lying.host, mirrors={opened.host: [lying.base]}
        ) as client:
            assert (await client.resolve(reference)).user == "1000:1000"


def _basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"
