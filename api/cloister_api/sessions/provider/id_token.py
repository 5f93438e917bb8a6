"""Whether an ID token may be believed (OpenID Connect Core 1.0, sections 3.1.3.7 and 3.1.2.1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hmac import compare_digest
from typing import Any

from jwt import PyJWK, PyJWS
from jwt.exceptions import PyJWTError

from cloister_api.sessions.provider.attempt import SignInAttempt
from cloister_api.sessions.provider.metadata import ALGORITHMS
from cloister_api.sessions.provider.refusal import RefusalReason, SignInRefused
from cloister_clients.foreign_json import parse_json

SKEW = timedelta(seconds=30)
"""How far the provider's clock may be from ours."""
LONGEST = 16 * 1024
"""Longest ID token that is read."""
MOST_VALUES = 500
"""Most values of an ID token that are read."""
KEY_TYPES = {"RS256": "RSA", "PS256": "RSA", "ES256": "EC", "EdDSA": "OKP"}
"""Type of the key that an algorithm needs (RFC 7518, section 6.1; RFC 8037)."""
LATEST_SECOND = 253_402_300_799
"""The last second of the year 9999."""
LONGEST_SUBJECT = 255
SIGNATURES = PyJWS(algorithms=list(ALGORITHMS), options={"enforce_minimum_key_length": True})


@dataclass(frozen=True, slots=True)
class TokenHeader:
    """What a token says of its signature; nothing of it is proven."""

    algorithm: str
    """Algorithm, one of those that are accepted."""
    key_id: str | None
    """Identifier of the key; None if it names none."""


def untrusted(detail: str) -> SignInRefused:
    """Build the refusal of a token."""
    return SignInRefused(RefusalReason.UNTRUSTED, f"the ID token {detail}")


def header_of(token: str) -> TokenHeader:
    """Return what a token says of its signature.

    Raises
    ------
    SignInRefused
        When it cannot be read, or is signed by an algorithm that is not accepted.
    """
    if len(token) > LONGEST:
        raise untrusted(f"has more than {LONGEST} characters")
    try:
        header = SIGNATURES.get_unverified_header(token)
    except (PyJWTError, ValueError) as error:
        raise untrusted("cannot be read") from error
    algorithm, key_id = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS:
        raise untrusted(f"is signed by {ascii(algorithm)[:40]}, not by {', '.join(ALGORITHMS)}")
    return TokenHeader(str(algorithm), key_id)


def key_for(header: TokenHeader, keys: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the key (RFC 7517) that a token names; None if it is not among them.

    A token that names none belongs to the matching key, if there is exactly one.
    """
    usable = [key for key in keys if fits(header, key)]
    if header.key_id is not None:
        usable = [key for key in usable if key.get("kid") == header.key_id]
    return usable[0] if len(usable) == 1 else None


def fits(header: TokenHeader, key: Mapping[str, Any]) -> bool:
    """Return whether a key is one for signatures by the algorithm of a token."""
    operations = key.get("key_ops")
    return (
        key.get("kty") == KEY_TYPES[header.algorithm]
        and key.get("use") in (None, "sig")
        and key.get("alg") in (None, header.algorithm)
        and (operations is None or (isinstance(operations, list) and "verify" in operations))
    )


def claims_of(token: str, header: TokenHeader, key: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a token says, once its signature is proven.

    Raises
    ------
    SignInRefused
        When it is not signed by the key, or says nothing that can be read.
    """
    try:
        public = PyJWK(dict(key), algorithm=header.algorithm)
        payload = SIGNATURES.decode_complete(token, public, [header.algorithm])["payload"]
    except (PyJWTError, ValueError, TypeError, NotImplementedError) as error:
        # Some of these errors show the token or the key.
        raise untrusted(f"is not signed by the key that it names: {type(error).__name__}") from None
    try:
        claims = parse_json(payload, most=MOST_VALUES)
    except ValueError as error:
        raise untrusted("is not JSON") from error
    if not isinstance(claims, dict):
        raise untrusted("is not an object")
    return claims


def check_claims(
    claims: Mapping[str, Any], attempt: SignInAttempt, *, issuer: str, client_id: str, now: datetime
) -> str:
    """Check that a token was made by this provider for this client, attempt and moment.

    Parameters
    ----------
    now
        Present time in UTC.

    Raises
    ------
    SignInRefused
        When it was not.
    """
    if claims.get("iss") != issuer:
        raise SignInRefused(RefusalReason.OTHER_PROVIDER, "the ID token is of another issuer")
    check_audience(claims, client_id)
    if moment(claims, "exp") <= now - SKEW:
        raise untrusted("has expired")
    if not attempt.begun - SKEW <= moment(claims, "iat") <= now + SKEW:
        raise untrusted("was not issued during this sign-in; compare the clocks")
    if "nbf" in claims and moment(claims, "nbf") > now + SKEW:
        raise untrusted("is not valid yet; compare the clocks")
    nonce, subject = claims.get("nonce"), claims.get("sub")
    if not isinstance(nonce, str) or not compare_digest(nonce.encode(), attempt.nonce.encode()):
        raise untrusted("has the nonce of another sign-in")
    if not isinstance(subject, str) or not 0 < len(subject) <= LONGEST_SUBJECT:
        raise untrusted("names no subject")
    return subject


def check_audience(claims: Mapping[str, Any], client_id: str) -> None:
    """Check that a token was made for this client.

    Raises
    ------
    SignInRefused
        When it was made for another one, or for several without naming this one as the party.
    """
    given = claims.get("aud")
    audience = given if isinstance(given, list) else [given]
    if client_id not in audience:
        raise untrusted("is for another client")
    if ("azp" in claims or len(audience) > 1) and claims.get("azp") != client_id:
        raise untrusted("was issued to another client")


def moment(claims: Mapping[str, Any], name: str) -> datetime:
    """Return a time of a token in UTC.

    Raises
    ------
    SignInRefused
        When it has none.
    """
    value: Any = claims.get(name)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # Written so that what is not a number, and infinity, are refused too.
    if not number or not 0 <= value <= LATEST_SECOND:
        raise untrusted(f"has no time in {name}")
    return datetime.fromtimestamp(float(value), UTC)


def authenticated_at(
    claims: Mapping[str, Any], attempt: SignInAttempt, now: datetime
) -> datetime | None:
    """Return when the person last proved at the provider who they are; None if it does not say.

    Parameters
    ----------
    attempt
        The attempt, which may want that to be a short while ago.
    now
        Present time in UTC.

    Raises
    ------
    SignInRefused
        When the attempt wants it recent and it is not, or it lies in the future.
    """
    if claims.get("auth_time") is None:
        if attempt.max_age is not None:
            raise SignInRefused(RefusalReason.NOT_RECENT, "the ID token has no auth_time")
        return None
    at = moment(claims, "auth_time")
    if at > now + SKEW:
        raise untrusted("has an auth_time in the future; compare the clocks")
    if attempt.max_age is not None and at < now - timedelta(seconds=attempt.max_age) - SKEW:
        raise SignInRefused(RefusalReason.NOT_RECENT, f"auth_time is {at:%Y-%m-%d %H:%M:%S} UTC")
    return min(at, now)
