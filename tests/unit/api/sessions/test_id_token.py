"""Which ID tokens are believed: their signatures and their claims, one by one."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, SECP384R1
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as new_ec_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as new_rsa_key

from cloister_api.sessions.provider.id_token import (
    authenticated_at,
    check_claims,
    claims_of,
    header_of,
    key_for,
)
from cloister_api.sessions.provider.refusal import RefusalReason, SignInRefused
from tests.unit.api.sessions.test_attempt import NOW, attempt_with

ISSUER, CLIENT = "https://id.example.test", "cloister"
RSA, OTHER_RSA, SHORT_RSA = (new_rsa_key(65537, bits) for bits in (2048, 2048, 1024))
EC, LONG_EC = new_ec_key(SECP256R1()), new_ec_key(SECP384R1())
ED = Ed25519PrivateKey.generate()
ALGORITHMS = jwt.algorithms.get_default_algorithms()
LIKE = {"RS256": RSA, "PS256": RSA, "ES256": EC, "EdDSA": ED}
SECONDS = int(NOW.timestamp())
RIGHT = {
    "iss": ISSUER,
    "aud": CLIENT,
    "exp": SECONDS + 300,
    "iat": SECONDS,
    "nonce": "n",
    "sub": "ada",
}


def public(algorithm: str, key: Any, **more: Any) -> dict[str, Any]:
    """Return the public part of a key, as a key set has it."""
    found = ALGORITHMS[algorithm].to_jwk(key.public_key(), as_dict=True)
    return {**{name: value for name, value in found.items() if name != "key_ops"}, **more}


def signed(algorithm: str, key: Any, **headers: Any) -> str:
    """Return a token with right claims."""
    return jwt.encode(RIGHT, key, algorithm=algorithm, headers=headers)


def believed(token: str, keys: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the claims of a token, as a sign-in does."""
    header = header_of(token)
    key = key_for(header, keys)
    assert key is not None
    return claims_of(token, header, key)


def refusal(token: str, keys: list[dict[str, Any]]) -> str:
    """Return why a token is not believed."""
    with pytest.raises(SignInRefused) as refused:
        believed(token, keys)
    assert refused.value.reason is RefusalReason.UNTRUSTED
    assert token not in str(refused.value)
    return refused.value.detail


@pytest.mark.parametrize("algorithm", LIKE)
@pytest.mark.parametrize("kid", [{}, {"kid": "k"}])
def test_a_signature_is_believed(algorithm: str, kid: dict[str, str]) -> None:
    keys = [public(algorithm, LIKE[algorithm], **kid)]
    assert believed(signed(algorithm, LIKE[algorithm], **kid), keys) == RIGHT


def test_a_key_is_found_among_others() -> None:
    keys = [
        public("RS256", OTHER_RSA, kid="other"),
        public("ES256", EC, kid="k"),
        public("RS256", RSA, kid="k", use="sig", alg="RS256"),
        {"kty": "unknown", "kid": "k"},
        {},
    ]
    assert believed(signed("RS256", RSA, kid="k"), keys) == RIGHT
    assert believed(signed("ES256", EC, kid="k"), keys) == RIGHT
    assert believed(signed("ES256", EC), keys) == RIGHT, "the only one of its kind"


@pytest.mark.parametrize(
    ("token", "keys"),
    [
        (signed("RS256", RSA, kid="k"), []),
        (signed("RS256", RSA, kid="k"), [public("RS256", RSA, kid="other")]),
        (signed("RS256", RSA, kid="k"), [public("RS256", RSA)]),
        (signed("RS256", RSA), [public("RS256", RSA), public("RS256", OTHER_RSA)]),
        (signed("RS256", RSA, kid="k"), [public("RS256", key, kid="k") for key in (RSA, RSA)]),
        (signed("RS256", RSA, kid="k"), [public("RS256", RSA, kid="k", use="enc")]),
        (signed("RS256", RSA, kid="k"), [public("RS256", RSA, kid="k", use=[])]),
        (signed("RS256", RSA, kid="k"), [public("RS256", RSA, kid="k", alg="PS256")]),
        (signed("RS256", RSA, kid="k"), [public("RS256", RSA, kid="k", key_ops=["encrypt"])]),
        (signed("RS256", RSA, kid="k"), [public("RS256", RSA, kid="k", key_ops="verify")]),
        (signed("ES256", EC, kid="k"), [public("RS256", RSA, kid="k")]),
    ],
)
def test_a_key_that_does_not_fit_is_not_found(token: str, keys: list[dict[str, Any]]) -> None:
    assert key_for(header_of(token), keys) is None


@pytest.mark.parametrize(
    ("token", "keys"),
    [
        (signed("RS256", OTHER_RSA), [public("RS256", RSA)]),
        (signed("RS256", RSA)[:-8] + "AAAAAAAA", [public("RS256", RSA)]),
        (signed("PS256", OTHER_RSA), [public("PS256", RSA)]),
        (signed("ES256", new_ec_key(SECP256R1())), [public("ES256", EC)]),
        (signed("ES256", EC), [public("ES384", LONG_EC)]),
        (signed("EdDSA", Ed25519PrivateKey.generate()), [public("EdDSA", ED)]),
        (signed("RS256", RSA), [{"kty": "RSA"}]),
        (signed("RS256", RSA), [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]),
        (signed("RS256", RSA), [{"kty": "RSA", "n": 1, "e": []}]),
    ],
)
def test_another_signature_is_not_believed(token: str, keys: list[dict[str, Any]]) -> None:
    assert "is not signed by the key that it names" in refusal(token, keys)


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
def test_a_short_key_is_not_believed() -> None:
    assert "not signed" in refusal(signed("RS256", SHORT_RSA), [public("RS256", SHORT_RSA)])


def test_the_public_key_as_a_shared_secret_is_not_believed() -> None:
    """The classic forgery: HS256 over a token, with the public key as its key."""
    token = jwt.encode(RIGHT, "x" * 32, algorithm="HS256")
    keys = [
        public("RS256", RSA),
        {"kty": "oct", "k": "eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHg"},
    ]
    assert "is signed by 'HS256'" in refusal(token, keys)


@pytest.mark.parametrize("algorithm", ["none", "HS256", "RS384", "RS512", "PS512", "ES384"])
def test_another_algorithm_is_not_believed(algorithm: str) -> None:
    key: Any = {"none": None, "HS256": "x" * 32, "ES384": LONG_EC}.get(algorithm, RSA)
    token = jwt.encode(RIGHT, key, algorithm=algorithm)
    assert "not by RS256, PS256, ES256, EdDSA" in refusal(token, [public("RS256", RSA)])


@pytest.mark.parametrize(
    "token",
    [
        *("", "a", "a.b", "a.b.c", "....", "ü.b.c", "eyJhbGciOiJSUzI1NiJ9", "W10.e30.AAAA"),
        signed("RS256", RSA, crit=["unheard-of"], **{"unheard-of": 1}),
    ],
)
def test_what_is_no_token_is_not_believed(token: str) -> None:
    with pytest.raises(SignInRefused, match="cannot be read"):
        header_of(token)


def test_a_token_beyond_the_limit_is_not_read() -> None:
    with pytest.raises(SignInRefused, match="has more than 16384 characters"):
        header_of("a" * 16385)


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (b"[]", "is not an object"),
        (b"text", "is not JSON"),
        (b"[" * 5000, "is not JSON"),
        (json.dumps({"groups": ["g"] * 600}).encode(), "is not JSON"),
    ],
)
def test_signed_nonsense_is_not_believed(payload: bytes, told: str) -> None:
    token = jwt.PyJWS().encode(payload, RSA, algorithm="RS256")
    assert told in refusal(token, [public("RS256", RSA)])


def checked(claims: Mapping[str, Any], now: datetime = NOW) -> str:
    given = {name: value for name, value in {**RIGHT, **claims}.items() if value is not None}
    return check_claims(given, attempt_with(), issuer=ISSUER, client_id=CLIENT, now=now)


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"aud": [CLIENT]},
        {"aud": [CLIENT, "other"], "azp": CLIENT},
        {"azp": CLIENT},
        {"exp": SECONDS - 29},
        {"exp": SECONDS + 0.5},
        {"iat": SECONDS - 30},
        {"iat": SECONDS + 30},
        {"nbf": SECONDS + 30},
    ],
)
def test_right_claims_name_the_subject(claims: dict[str, Any]) -> None:
    assert checked(claims) == "ada"


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ({"aud": None}, "for another client"),
        ({"aud": "other"}, "for another client"),
        ({"aud": []}, "for another client"),
        ({"aud": {CLIENT: 1}}, "for another client"),
        ({"aud": [CLIENT, "other"]}, "issued to another client"),
        ({"aud": [CLIENT, "other"], "azp": "other"}, "issued to another client"),
        ({"azp": "other"}, "issued to another client"),
        ({"azp": [CLIENT]}, "issued to another client"),
        ({"exp": None}, "no time in exp"),
        ({"exp": "soon"}, "no time in exp"),
        ({"exp": True}, "no time in exp"),
        ({"exp": float("nan")}, "no time in exp"),
        ({"exp": float("inf")}, "no time in exp"),
        ({"exp": 10**400}, "no time in exp"),
        ({"exp": -1}, "no time in exp"),
        ({"exp": SECONDS - 30}, "has expired"),
        ({"exp": SECONDS - 86_400}, "has expired"),
        ({"iat": None}, "no time in iat"),
        ({"iat": SECONDS - 31}, "not issued during this sign-in"),
        ({"iat": SECONDS + 31}, "not issued during this sign-in"),
        ({"nbf": SECONDS + 31}, "not valid yet"),
        ({"nbf": "soon"}, "no time in nbf"),
        ({"nonce": None}, "nonce of another sign-in"),
        ({"nonce": ""}, "nonce of another sign-in"),
        ({"nonce": "m"}, "nonce of another sign-in"),
        ({"nonce": ["n"]}, "nonce of another sign-in"),
        ({"sub": None}, "names no subject"),
        ({"sub": ""}, "names no subject"),
        ({"sub": 7}, "names no subject"),
        ({"sub": "x" * 256}, "names no subject"),
    ],
)
def test_other_claims_are_not_believed(claims: dict[str, Any], told: str) -> None:
    with pytest.raises(SignInRefused, match=told) as refused:
        checked(claims)
    assert refused.value.reason is RefusalReason.UNTRUSTED


@pytest.mark.parametrize("issuer", [None, f"{ISSUER}/", "https://id.attacker.test", [ISSUER]])
def test_a_token_of_another_issuer_is_of_another_provider(issuer: Any) -> None:
    with pytest.raises(SignInRefused) as refused:
        checked({"iss": issuer})
    assert refused.value.reason is RefusalReason.OTHER_PROVIDER


def test_a_slow_sign_in_has_a_token_of_its_end() -> None:
    later = NOW + timedelta(minutes=9)
    at = int(later.timestamp())
    assert checked({"iat": at, "exp": at + 60}, later) == "ada"


@pytest.mark.parametrize(
    ("claims", "max_age", "expected"),
    [
        ({}, None, None),
        ({"auth_time": None}, None, None),
        ({"auth_time": SECONDS - 86_400}, None, NOW - timedelta(days=1)),
        ({"auth_time": SECONDS - 930}, 900, NOW - timedelta(seconds=930)),
        ({"auth_time": SECONDS + 30}, 900, NOW),
    ],
)
def test_when_somebody_proved_who_they_are(
    claims: dict[str, Any], max_age: int | None, expected: datetime | None
) -> None:
    assert authenticated_at(claims, attempt_with(max_age=max_age), NOW) == expected


@pytest.mark.parametrize(
    ("claims", "max_age", "reason"),
    [
        ({}, 900, RefusalReason.NOT_RECENT),
        ({"auth_time": SECONDS - 931}, 900, RefusalReason.NOT_RECENT),
        ({"auth_time": SECONDS + 31}, None, RefusalReason.UNTRUSTED),
        ({"auth_time": SECONDS + 31}, 900, RefusalReason.UNTRUSTED),
        ({"auth_time": "now"}, 900, RefusalReason.UNTRUSTED),
        ({"auth_time": True}, None, RefusalReason.UNTRUSTED),
    ],
)
def test_what_is_no_recent_proof(
    claims: dict[str, Any], max_age: int | None, reason: RefusalReason
) -> None:
    with pytest.raises(SignInRefused) as refused:
        authenticated_at(claims, attempt_with(max_age=max_age), NOW)
    assert refused.value.reason is reason


def test_times_are_in_utc() -> None:
    at = authenticated_at({"auth_time": SECONDS}, attempt_with(), NOW)
    assert at is not None
    assert at.tzinfo is UTC
