"""Who somebody is here, by what the provider says of them."""

import re
from collections.abc import Mapping
from typing import Any

from cloister_api.sessions.provider.refusal import RefusalReason, SignInRefused
from cloister_api.sessions.provider.settings import OpenIdSettings

__all__ = ["says_enough", "user_of"]

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
