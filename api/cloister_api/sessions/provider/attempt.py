"""An attempt to sign in, sealed in the browser's cookie, and the user that results."""

import base64
import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hmac import compare_digest
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cloister_api.ledger.keys.key_material import KeySealer, MaterialError
from cloister_api.sessions.provider.refusal import RefusalReason, SignInRefused
from cloister_api.sessions.provider.settings import OpenIdSettings

EMAIL, VERIFIED = "email", "email_verified"
USER = re.compile(r"[!-~]{1,253}")
"""Names of members of an Organization."""


def says_enough(claims: Mapping[str, Any], claim: str) -> bool:
    """Return whether claims can name the user by themselves.

    An address from one place and its verification from another could be of two addresses.
    """
    return claims.get(claim) is not None and (claim != EMAIL or VERIFIED in claims)


def user_of(claims: Mapping[str, Any], settings: OpenIdSettings) -> str:
    """Return the user, as Organizations name their members.

    Parameters
    ----------
    claims
        Claims of one place: the ID token, or UserInfo.
    settings
        The provider as the settings name it.

    Raises
    ------
    SignInRefused
        When the claim is missing or cannot be a user, or is an address that was not verified.
    """
    claim = settings.username_claim
    value = claims.get(claim)
    if value is None:
        raise SignInRefused(
            RefusalReason.NO_NAME,
            f"the claim {claim} is missing; compare dashboard.oidc.usernameClaim and scopes",
        )
    if claim == EMAIL and claims.get(VERIFIED) is not True:
        raise SignInRefused(
            RefusalReason.EMAIL_NOT_VERIFIED,
            "email_verified is not true; where the provider never sends it, set "
            "dashboard.oidc.usernameClaim to sub",
        )
    user = f"{settings.username_prefix}{value}"
    if not isinstance(value, str) or not value or not USER.fullmatch(user):
        raise SignInRefused(RefusalReason.UNUSABLE_NAME, f"the claim {claim} cannot name a user")
    return user


LIFE = timedelta(minutes=10)
"""How long an attempt may take."""
SKEW = timedelta(seconds=30)
"""How far the clocks of two replicas may differ."""
SECRET_BYTES = 32
CONTEXT = "an attempt to sign in"
PLACE = re.compile(r"/(?![/\\])[!-\[\]-~]{0,511}")
"""A path of this dashboard with its query. Browsers take a backslash for a slash, and leave out
blanks and control characters, so that it may have none."""
LONGEST_CODE = 4096
"""Longest code and longest word of an error that is read."""


class SignInAttempt(BaseModel):
    """An attempt to sign in."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state: str = Field(repr=False)
    """What the provider sends back, so that the response is to this attempt."""
    nonce: str = Field(repr=False)
    """What the ID token must contain, so that it was made for this attempt."""
    verifier: str = Field(repr=False)
    """What the code can be exchanged with (RFC 7636)."""
    next: str
    """Path of the page to go to afterwards."""
    begun: datetime
    """When it began, in UTC."""
    max_age: int | None = None
    """Seconds since the person last proved at the provider who they are; None means any."""

    @property
    def challenge(self) -> str:
        """The code challenge (RFC 7636, section 4.2, S256)."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def safe_next(path: str) -> str:
    """Return a path of this dashboard to go to after a sign-in; anything else becomes `/`.

    Parameters
    ----------
    path
        What the address requests. Anybody may have written it.
    """
    of_sign_in = path.partition("?")[0].rstrip("/") == "/session" or path.startswith("/session/")
    return path if PLACE.fullmatch(path) and not of_sign_in else "/"


def new_attempt(path: str, now: datetime, max_age: int | None) -> SignInAttempt:
    """Begin an attempt.

    Parameters
    ----------
    path
        Page to go to afterwards, see `safe_next`.
    now
        Present time in UTC.
    max_age
        See `SignInAttempt.max_age`.
    """
    state, nonce, verifier = (secrets.token_urlsafe(SECRET_BYTES) for _ in range(3))
    return SignInAttempt(
        state=state,
        nonce=nonce,
        verifier=verifier,
        next=safe_next(path),
        begun=now,
        max_age=max_age,
    )


def sealed(attempt: SignInAttempt, material: KeySealer) -> str:
    """Return the value of the cookie that keeps an attempt."""
    return material.seal(attempt.model_dump_json(), context=CONTEXT)


def opened(cookie: str, material: KeySealer, now: datetime) -> SignInAttempt:
    """Return the attempt that a cookie keeps.

    Raises
    ------
    SignInRefused
        When there is none, it was changed, or it began too long ago.
    """
    if not cookie:
        raise SignInRefused(RefusalReason.NOT_BEGUN, "the browser sent no attempt")
    try:
        attempt = SignInAttempt.model_validate_json(material.unseal(cookie, context=CONTEXT))
    except (MaterialError, ValidationError) as error:
        raise SignInRefused(
            RefusalReason.NOT_BEGUN, "the attempt of the browser does not open"
        ) from error
    if not -SKEW <= now - attempt.begun <= LIFE:
        raise SignInRefused(
            RefusalReason.TOO_LATE, f"the attempt began at {attempt.begun:%H:%M:%S}"
        )
    return attempt


def code_of(
    parameters: Sequence[tuple[str, str]],
    attempt: SignInAttempt,
    *,
    issuer: str,
    names_issuer: bool,
) -> str:
    """Return the code of an authorization response.

    Parameters
    ----------
    parameters
        Names and values of its query, in order.
    names_issuer
        Whether the provider announces that it names itself in each response (RFC 9207).

    Raises
    ------
    SignInRefused
        When it is not a response to this attempt, of another provider, or an error.
    """
    given = dict(parameters)
    if len(given) < len(parameters):
        raise SignInRefused(RefusalReason.NOT_BEGUN, "a parameter of the response is repeated")
    # Before anything else: what is not a response to this attempt must not be read.
    if not compare_digest(given.get("state", "").encode(), attempt.state.encode()):
        raise SignInRefused(RefusalReason.NOT_BEGUN, "the state is that of another attempt")
    named = given.get("iss")
    if named != issuer and (names_issuer or named is not None):
        raise SignInRefused(RefusalReason.OTHER_PROVIDER, f"the response is of {printable(named)}")
    if "error" in given:
        word = printable(given["error"])
        known = given["error"] == "access_denied"
        reason = RefusalReason.DECLINED if known else RefusalReason.MISUNDERSTOOD
        raise SignInRefused(reason, f"the provider responded with the error {word}")
    code = given.get("code", "")
    if not code or len(code) > LONGEST_CODE:
        raise SignInRefused(
            RefusalReason.MISUNDERSTOOD, "the response has no code that can be used"
        )
    return code


def printable(text: str | None) -> str:
    """Return a text of others as a log can have it: quoted and cut."""
    return "nobody" if text is None else ascii(text[:120])
