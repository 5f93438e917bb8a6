"""Requests to a provider on a socket: what is kept, what is asked for again, what is refused."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from cloister_api.ledger.keys.key_material import KeyMaterial
from cloister_api.sessions.provider.client import ProviderClient, Tokens
from cloister_api.sessions.provider.refusal import RefusalReason, SignInRefused
from cloister_api.sessions.provider.settings import OpenIdSettings, read_client_secret
from cloister_api.sessions.provider.sign_in import AT_ONCE, ProviderSignIn
from cloister_clients.settings import SettingsError
from tests.support.stand_ins.http_server import Reply
from tests.support.stand_ins.openid import (
    CLIENT,
    SECRET,
    Forged,
    OpenIdStandIn,
    as_key,
    new_key,
    openid_stand_in,
)
from tests.unit.api.sessions.test_attempt import MATERIAL, NOW
from tests.unit.api.sessions.test_metadata import settings_with

DISCOVERY = "/.well-known/openid-configuration"
CONSOLE = "https://console.example.test"


@dataclass
class Watch:
    """A clock that a test moves."""

    now: datetime = NOW

    def __call__(self) -> datetime:
        """Return its time."""
        return self.now

    def forward(self, **amount: float) -> None:
        """Let time go by."""
        self.now += timedelta(**amount)


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def provider() -> Iterator[OpenIdStandIn]:
    with openid_stand_in() as running:
        yield running


@pytest.fixture
def settings(provider: OpenIdStandIn, tmp_path: Path) -> OpenIdSettings:
    (tmp_path / "secret").write_text(SECRET)
    return settings_with(
        issuer=provider.issuer, clientId=CLIENT, clientSecretFile=tmp_path / "secret"
    )


@pytest.fixture
async def client(settings: OpenIdSettings, watch: Watch) -> AsyncIterator[ProviderClient]:
    made = ProviderClient(settings, watch)
    yield made
    await made.aclose()


@pytest.fixture
def service(settings: OpenIdSettings, client: ProviderClient, watch: Watch) -> ProviderSignIn:
    return ProviderSignIn(settings, CONSOLE, client, MATERIAL, watch)


async def signed_in(
    service: ProviderSignIn, provider: OpenIdStandIn, watch: Watch, **forged: Any
) -> str:
    """Sign ada in by a token of the watch's time, and return the user."""
    at = int(watch.now.timestamp())
    begun = await service.begin("/x", None)
    claims = {"iat": at, "exp": at + 300, **forged.pop("claims", {})}
    back = provider.consent(begun.address, Forged(claims=claims, **forged))
    query = parse_qsl(urlsplit(back).query)
    found = await service.finish(query, begun.cookie)
    assert (found.next, found.subject) == ("/x", "ada")
    return found.user


async def refusal(
    service: ProviderSignIn, provider: OpenIdStandIn, watch: Watch, **forged: Any
) -> RefusalReason:
    with pytest.raises(SignInRefused) as refused:
        await signed_in(service, provider, watch, **forged)
    return refused.value.reason


async def test_documents_are_read_once_an_hour(
    service: ProviderSignIn, provider: OpenIdStandIn, watch: Watch
) -> None:
    for _ in range(3):
        assert await signed_in(service, provider, watch) == "ada@example.test"
    assert (provider.read(DISCOVERY), provider.read("/keys")) == (1, 1)
    watch.forward(hours=1)
    assert await signed_in(service, provider, watch) == "ada@example.test"
    assert (provider.read(DISCOVERY), provider.read("/keys")) == (2, 2)


async def test_an_unknown_key_is_looked_for_once_a_minute(
    service: ProviderSignIn, provider: OpenIdStandIn, watch: Watch
) -> None:
    await signed_in(service, provider, watch)
    provider.published["fresh"] = new_key()
    fresh: dict[str, Any] = {"kid": "fresh", "key": provider.published["fresh"]}
    assert await refusal(service, provider, watch, **fresh) is RefusalReason.UNTRUSTED
    assert provider.read("/keys") == 1
    watch.forward(minutes=1)
    assert await signed_in(service, provider, watch, **fresh) == "ada@example.test"
    assert provider.read("/keys") == 2
    for _ in range(3):
        assert await refusal(service, provider, watch, kid="made-up") is RefusalReason.UNTRUSTED
    assert provider.read("/keys") == 2
    with pytest.raises(SignInRefused, match="names a key that is unknown"):
        await signed_in(service, provider, watch, kid="made-up")
    watch.forward(seconds=59)
    assert await refusal(service, provider, watch, kid="made-up") is RefusalReason.UNTRUSTED
    assert provider.read("/keys") == 2


async def test_a_key_that_is_withdrawn_counts_for_an_hour_at_most(
    service: ProviderSignIn, provider: OpenIdStandIn, watch: Watch
) -> None:
    old = provider.own
    await signed_in(service, provider, watch)
    provider.own = new_key()
    watch.forward(hours=1)
    assert await refusal(service, provider, watch, key=old) is RefusalReason.UNTRUSTED


async def test_a_provider_that_is_down_is_asked_every_five_seconds(
    service: ProviderSignIn, provider: OpenIdStandIn, watch: Watch
) -> None:
    provider.down = True
    for _ in range(3):
        assert await refusal(service, provider, watch) is RefusalReason.UNREACHABLE
    assert provider.read(DISCOVERY) == 1
    for times in (2, 3):
        watch.forward(seconds=5)
        for _ in range(3):
            assert await refusal(service, provider, watch) is RefusalReason.UNREACHABLE
        assert provider.read(DISCOVERY) == times
    provider.down = False
    watch.forward(seconds=5)
    assert await signed_in(service, provider, watch) == "ada@example.test"


async def test_many_at_once_read_a_document_once(
    service: ProviderSignIn, provider: OpenIdStandIn
) -> None:
    results = await asyncio.gather(
        *(service.begin("/", None) for _ in range(AT_ONCE + 3)), return_exceptions=True
    )
    refused = [each for each in results if isinstance(each, SignInRefused)]
    assert [each.reason for each in refused] == [RefusalReason.BUSY] * 3
    assert provider.read(DISCOVERY) == 1
    await service.begin("/", None)


async def test_a_code_counts_once_and_for_its_verifier_alone(
    client: ProviderClient, provider: OpenIdStandIn, service: ProviderSignIn, watch: Watch
) -> None:
    begun = await service.begin("/", None)
    provider.consent(begun.address, Forged())
    with pytest.raises(SignInRefused, match="invalid_grant") as refused:
        await client.exchange("code-0", verifier="made-up", redirect=f"{CONSOLE}/session/callback")
    assert refused.value.reason is RefusalReason.NOT_BEGUN


async def test_a_wrong_secret_is_a_fault_of_the_settings(
    service: ProviderSignIn, provider: OpenIdStandIn, settings: OpenIdSettings, watch: Watch
) -> None:
    settings.client_secret_file.write_text("another")
    assert await refusal(service, provider, watch) is RefusalReason.MISUNDERSTOOD
    settings.client_secret_file.write_text(f"{SECRET}\n")
    assert await signed_in(service, provider, watch) == "ada@example.test", "without a restart"
    settings.client_secret_file.unlink()
    assert await refusal(service, provider, watch) is RefusalReason.MISUNDERSTOOD


async def test_a_secret_may_be_sent_in_the_body(
    service: ProviderSignIn, provider: OpenIdStandIn, watch: Watch
) -> None:
    provider.document["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
    assert await refusal(service, provider, watch) is RefusalReason.MISUNDERSTOOD, (
        "it wants the header"
    )
    assert provider.served is not None
    sent = provider.served.requests[-1]
    assert b"client_id=dash+board" in sent.body
    assert b"client_secret=made-up%2Fsecret%3A%2B%25" in sent.body
    assert "authorization" not in sent.headers


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://id.attacker.test"},
        {"jwks_uri": "http://127.0.0.1:1/keys"},
        {"token_endpoint": "http://127.0.0.1:1/token"},
    ],
)
async def test_documents_that_lead_elsewhere_sign_nobody_in(
    service: ProviderSignIn, provider: OpenIdStandIn, watch: Watch, document: dict[str, str]
) -> None:
    """Only the issuer's own port of this machine may be called without TLS."""
    provider.document.update(document)
    assert await refusal(service, provider, watch) is RefusalReason.MISUNDERSTOOD


@pytest.mark.parametrize("key_set", [[], {}, {"keys": {}}, {"keys": "own"}, "text"])
async def test_a_key_set_that_is_none_signs_nobody_in(
    service: ProviderSignIn, provider: OpenIdStandIn, watch: Watch, key_set: Any
) -> None:
    provider.key_set = key_set
    assert await refusal(service, provider, watch) is RefusalReason.MISUNDERSTOOD


async def test_odd_keys_of_a_key_set_are_left_out(
    service: ProviderSignIn, provider: OpenIdStandIn, watch: Watch
) -> None:
    provider.key_set = {"keys": ["text", 7, None, as_key("own", provider.own)]}
    assert await signed_in(service, provider, watch) == "ada@example.test"


@pytest.mark.parametrize("body", [b"[]", b"{}", b'"text"', b'{"id_token": 7}', b"no JSON"])
async def test_a_token_response_that_is_none_signs_nobody_in(
    service: ProviderSignIn, provider: OpenIdStandIn, watch: Watch, body: bytes
) -> None:
    refused = await refusal(service, provider, watch, answer=Reply(200, body))
    assert refused is RefusalReason.MISUNDERSTOOD


@pytest.mark.parametrize("status", [302, 400, 401, 404])
async def test_a_token_response_of_another_status_signs_nobody_in(
    service: ProviderSignIn, provider: OpenIdStandIn, watch: Watch, status: int
) -> None:
    """Its body would be a right one."""
    body = b'{"id_token": "x.y.z", "access_token": "a"}'
    refused = await refusal(service, provider, watch, answer=Reply(status, body))
    assert refused is RefusalReason.MISUNDERSTOOD


@pytest.mark.parametrize(
    ("user_info", "reason"),
    [
        ([], RefusalReason.MISUNDERSTOOD),
        ("text", RefusalReason.MISUNDERSTOOD),
        ({"sub": 7, "email": "ada@example.test"}, RefusalReason.UNTRUSTED),
        ({"email": "ada@example.test", "email_verified": True}, RefusalReason.UNTRUSTED),
        ({"sub": "eve", "email": "ada@example.test"}, RefusalReason.UNTRUSTED),
        ({}, RefusalReason.NO_NAME),
    ],
)
async def test_user_info_of_nobody_names_nobody(
    service: ProviderSignIn,
    provider: OpenIdStandIn,
    watch: Watch,
    user_info: Any,
    reason: RefusalReason,
) -> None:
    found = await refusal(service, provider, watch, user_info=user_info, claims={"email": None})
    assert found is reason


@pytest.mark.parametrize("token", ["a\nb", "ü", "a b\x00"])
async def test_an_access_token_that_cannot_be_sent_is_not(
    client: ProviderClient, provider: OpenIdStandIn, token: str
) -> None:
    with pytest.raises(SignInRefused, match="cannot be sent"):
        await client.user_info(Tokens("", token))
    assert provider.read("/userinfo") == 0


@pytest.mark.parametrize("token", ["", None])
async def test_without_an_access_token_user_info_says_nothing(
    client: ProviderClient, provider: OpenIdStandIn, token: str | None
) -> None:
    assert await client.user_info(Tokens("", token)) == {}
    assert provider.read("/userinfo") == 0


async def test_a_private_address_has_to_be_named(watch: Watch, tmp_path: Path) -> None:
    private = settings_with(issuer="https://127.0.0.1:9", clientSecretFile=tmp_path / "secret")
    client = ProviderClient(private, watch)
    with pytest.raises(SignInRefused, match=r"allowPrivate; .* dashboard\.oidc"):
        await client.metadata()
    await client.aclose()
    named = private.model_copy(update={"allow_private": ("127.0.0.1",)})
    client = ProviderClient(named, watch)
    with pytest.raises(SignInRefused) as refused:
        await client.metadata()
    assert refused.value.reason is RefusalReason.UNREACHABLE
    await client.aclose()


async def test_without_user_info_the_token_has_to_name_the_user(
    service: ProviderSignIn, provider: OpenIdStandIn, watch: Watch
) -> None:
    provider.document["userinfo_endpoint"] = None
    assert await signed_in(service, provider, watch) == "ada@example.test"
    begun = await service.begin("/", None)
    at = int(watch.now.timestamp())
    claims = {"iat": at, "exp": at + 300, "email": None}
    back = provider.consent(begun.address, Forged(claims=claims))
    query = parse_qsl(urlsplit(back).query)
    with pytest.raises(SignInRefused) as refused:
        await service.finish(query, begun.cookie)
    assert (refused.value.reason, refused.value.subject) == (RefusalReason.NO_NAME, "ada")


async def test_the_way_out_is_the_providers(
    service: ProviderSignIn, provider: OpenIdStandIn, watch: Watch
) -> None:
    assert await service.sign_out_address() is None, "it names none"
    provider.document["end_session_endpoint"] = f"{provider.issuer}/out?x=1"
    watch.forward(hours=1)
    address = f"{provider.issuer}/out?x=1&client_id=dash+board"
    assert await service.sign_out_address() == address
    provider.down = True
    watch.forward(hours=1)
    assert await service.sign_out_address() is None


async def test_another_replica_finishes_a_sign_in(
    service: ProviderSignIn, provider: OpenIdStandIn, settings: OpenIdSettings, watch: Watch
) -> None:
    client = ProviderClient(settings, watch)
    other = ProviderSignIn(settings, CONSOLE, client, MATERIAL, watch)
    at = int(watch.now.timestamp())
    begun = await service.begin("/x", None)
    back = provider.consent(begun.address, Forged(claims={"iat": at, "exp": at + 300}))
    found = await other.finish(parse_qsl(urlsplit(back).query), begun.cookie)
    assert found.user == "ada@example.test"
    await client.aclose()


async def test_a_cookie_of_another_key_counts_for_nothing(
    service: ProviderSignIn, settings: OpenIdSettings, client: ProviderClient, watch: Watch
) -> None:
    other = ProviderSignIn(settings, CONSOLE, client, KeyMaterial(b"i" * 32, b"x" * 32), watch)
    begun = await other.begin("/", None)
    with pytest.raises(SignInRefused) as refused:
        await service.finish([], begun.cookie)
    assert refused.value.reason is RefusalReason.NOT_BEGUN


@pytest.mark.parametrize("content", [b"", b"  \n", b"two\nlines", b"\xff", b"a\x00b"])
def test_a_file_without_a_secret_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "secret").write_bytes(content)
    with pytest.raises(SettingsError, match=r"clientSecretFile: .* write the client's secret"):
        read_client_secret(settings_with(clientSecretFile=tmp_path / "secret"))


def test_authorities_that_are_none_are_refused(tmp_path: Path, watch: Watch) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(SettingsError, match=r"dashboard\.oidc\.caFile: "):
        ProviderClient(settings_with(caFile=tmp_path / "ca.pem"), watch)
