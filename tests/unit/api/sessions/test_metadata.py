"""Which discovery documents can be used, and where they lead."""

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from cloister_api.sessions.provider.attempt import new_attempt
from cloister_api.sessions.provider.metadata import (
    authorization_address,
    discovery_address,
    metadata_of,
)
from cloister_api.sessions.provider.refusal import RefusalReason, SignInRefused
from cloister_api.sessions.provider.settings import OpenIdSettings
from tests.unit.api.sessions.test_attempt import NOW

BASE = "https://id.example.test"
RIGHT = {
    "issuer": BASE,
    "authorization_endpoint": f"{BASE}/authorize?tenant=a",
    "token_endpoint": "https://tokens.example.test/token",
    "jwks_uri": f"{BASE}/keys",
}


def settings_with(**changes: Any) -> OpenIdSettings:
    given = {
        "name": "Acme SSO",
        "issuer": BASE,
        "clientId": "cloister",
        "clientSecretFile": Path("/secret"),
    }
    return OpenIdSettings.model_validate({**given, **changes})


@pytest.mark.parametrize(
    ("issuer", "address"),
    [
        (BASE, f"{BASE}/.well-known/openid-configuration"),
        (f"{BASE}/", f"{BASE}/.well-known/openid-configuration"),
        (f"{BASE}/tenant", f"{BASE}/tenant/.well-known/openid-configuration"),
    ],
)
def test_the_document_is_below_the_issuer(issuer: str, address: str) -> None:
    assert discovery_address(issuer) == address


def test_a_short_document_is_enough() -> None:
    found = metadata_of(RIGHT, settings_with())
    assert found.token_endpoint == "https://tokens.example.test/token"
    assert found.userinfo_endpoint is None
    assert found.end_session_endpoint is None
    assert found.secret_in_header
    assert not found.names_issuer


def test_a_long_document_says_more() -> None:
    more = {
        "userinfo_endpoint": f"{BASE}/me",
        "end_session_endpoint": f"{BASE}/out",
        "authorization_response_iss_parameter_supported": True,
        "token_endpoint_auth_methods_supported": ["client_secret_post", "private_key_jwt"],
        "id_token_signing_alg_values_supported": ["none", "ES256"],
        "code_challenge_methods_supported": ["plain", "S256"],
        "response_types_supported": ["code", "id_token"],
    }
    found = metadata_of({**RIGHT, **more}, settings_with())
    assert found.userinfo_endpoint == f"{BASE}/me"
    assert found.end_session_endpoint == f"{BASE}/out"
    assert found.names_issuer
    assert not found.secret_in_header


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"issuer": f"{BASE}/"}, "dashboard.oidc.issuer is 'https://id.example.test'"),
        ({"issuer": "https://id.attacker.test"}, "has the issuer 'https://id.attacker.test'"),
        ({"issuer": None}, "has the issuer None"),
        ({"token_endpoint": None}, "no address with https in token_endpoint"),
        ({"token_endpoint": 1}, "no address with https in token_endpoint"),
        ({"token_endpoint": "http://id.example.test/token"}, "https in token_endpoint"),
        ({"token_endpoint": "https:///token"}, "https in token_endpoint"),
        ({"jwks_uri": "https://ada@id.example.test/keys"}, "https in jwks_uri"),
        ({"jwks_uri": "file:///etc/passwd"}, "https in jwks_uri"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "in authorization_endpoint"),
        ({"authorization_endpoint": f"{BASE}/a#b"}, "in authorization_endpoint"),
        ({"authorization_endpoint": f"{BASE}/a b"}, "in authorization_endpoint"),
        ({"end_session_endpoint": "javascript:alert(1)"}, "in end_session_endpoint"),
        ({"userinfo_endpoint": "http://id.example.test/me"}, "in userinfo_endpoint"),
        ({"id_token_signing_alg_values_supported": ["HS256", "none"]}, "offers none of RS256"),
        ({"id_token_signing_alg_values_supported": "RS256"}, "offers none of RS256"),
        ({"id_token_signing_alg_values_supported": 256}, "offers none of RS256"),
        ({"id_token_signing_alg_values_supported": {"RS256": True}}, "offers none of RS256"),
        ({"code_challenge_methods_supported": ["plain"]}, "offers none of S256"),
        ({"response_types_supported": ["id_token"]}, "offers none of code"),
        ({"token_endpoint_auth_methods_supported": ["none"]}, "offers none of client_secret_basic"),
    ],
)
def test_another_document_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(SignInRefused, match=told) as refused:
        metadata_of({**RIGHT, **changes}, settings_with())
    assert refused.value.reason is RefusalReason.MISUNDERSTOOD


@pytest.mark.parametrize("document", [None, [], "text", 1])
def test_what_is_no_object_is_refused(document: Any) -> None:
    with pytest.raises(SignInRefused, match="is not an object"):
        metadata_of(document, settings_with())


def test_a_provider_of_this_machine_may_do_without_tls() -> None:
    local = {name: text.replace("https://", "http://") for name, text in RIGHT.items()}
    local["issuer"] = "http://localhost:9000"
    found = metadata_of(local, settings_with(issuer="http://localhost:9000"))
    assert found.token_endpoint.startswith("http://")


@pytest.mark.parametrize("max_age", [None, 900])
def test_the_browser_is_sent_with_everything(max_age: int | None) -> None:
    attempt = new_attempt("/x", NOW, max_age)
    metadata = metadata_of(RIGHT, settings_with())
    back = "https://console.example.test/session/callback"
    address = authorization_address(metadata, settings_with(), attempt, back)
    assert address.startswith(f"{BASE}/authorize?")
    expected = {
        "tenant": "a",
        "response_type": "code",
        "client_id": "cloister",
        "redirect_uri": back,
        "scope": "openid email",
        "state": attempt.state,
        "nonce": attempt.nonce,
        "code_challenge": attempt.challenge,
        "code_challenge_method": "S256",
        **({"max_age": "900"} if max_age else {}),
    }
    assert dict(parse_qsl(urlsplit(address).query)) == expected


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"issuer": "id.example.test"}, "is not an issuer"),
        ({"issuer": "https://"}, "is not an issuer"),
        ({"issuer": "https://ada@id.example.test"}, "is not an issuer"),
        ({"issuer": "https://id.example.test?x"}, "is not an issuer"),
        ({"issuer": "https://id.example.test#x"}, "is not an issuer"),
        ({"issuer": "https://id.example.test:0"}, "is not an issuer"),
        ({"issuer": "https://id.example.test:99999"}, "is not an address"),
        ({"issuer": "http://id.example.test"}, "neither https nor http on 127.0.0.1"),
        ({"issuer": "ftp://localhost"}, "neither https nor http on 127.0.0.1"),
        ({"scopes": ["email"]}, "openid is missing"),
        ({"scopes": ["openid", "two words"]}, "scopes"),
        ({"usernameClaim": ""}, "usernameClaim"),
        ({"usernamePrefix": "two words"}, "usernamePrefix"),
        ({"clientId": ""}, "clientId"),
        ({"name": ""}, "name"),
        ({"clientSecret": "written here"}, "clientSecret"),
    ],
)
def test_other_settings_are_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        settings_with(**changes)


def test_only_named_hosts_may_be_private() -> None:
    guard = settings_with(allowPrivate=["id.example.test"]).guard()
    assert guard.allow_private == {"id.example.test"}
    assert not guard.plain_http
    local = settings_with(issuer="http://localhost:9000/").guard()
    assert local.allow_private == local.plain_http == {"localhost:9000"}
    six = settings_with(issuer="http://[::1]").guard()
    assert six.plain_http == {"[::1]:80"}
