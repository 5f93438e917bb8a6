"""Decides whether a key may be used now. Pure."""

from dataclasses import dataclass, field

from cloister_api.errors import ApiError
from cloister_crds.kinds import Organization
from cloister_crds.lifecycle.admission.limits import billing_of

__all__ = ["UNKNOWN_KEY", "CachedApiKey", "judge"]

UNKNOWN_KEY = ApiError(401, "UNAUTHORIZED", "invalid, expired or disabled API key")
"""One response for all of them: it must not reveal which keys exist."""
FOREIGN = ApiError(403, "FORBIDDEN", "this API key may not be used at this domain")
UNPAID = ApiError(
    402, "PAYMENT_REQUIRED", "the organization of this API key has no active token billing"
)
EXHAUSTED = ApiError(
    402,
    "PAYMENT_REQUIRED",
    "this API key has used up its max_tokens; raise the cap or use another key",
)


@dataclass(slots=True)
class CachedApiKey:
    """A key that is not deleted, in memory."""

    id: int
    """Number of the record."""
    index: bytes = field(repr=False)
    """HMAC of the value."""
    organization: str
    """Slug of the organization."""
    organization_id: str
    """Identifier of that Organization."""
    disabled: bool
    """Whether it was switched off."""
    expires_at: float | None
    """Unix time when it expires; None = never."""
    max_tokens: int | None
    """Cap; None = no cap."""
    used: int = 0
    """Tokens that were reported for it."""
    tokens: float = -1.0
    """Checks that its token bucket still allows at once; negative = it was not checked yet."""
    refilled_at: float = 0.0
    """Monotonic time that `tokens` was computed for."""


def judge(
    key: CachedApiKey,
    organization: Organization | None,
    places: tuple[Organization | None, ...],
    now: float,
) -> ApiError | None:
    """Decide whether a key may be used.

    Parameters
    ----------
    key
        The key.
    organization
        The Organization of the key's slug; None = there is none.
    places
        For each domain that was reported, the Organization that serves it; None = none does.
    now
        Unix time.

    Returns
    -------
    ApiError or None
        401, then 403, then 402 (spec 25.4); None = it may be used.
    """
    expired = key.expires_at is not None and key.expires_at <= now
    if organization is None or organization.identifier != key.organization_id:
        return UNKNOWN_KEY
    if key.disabled or expired:
        return UNKNOWN_KEY
    if not all(admits(place, organization) for place in places):
        return FOREIGN
    if not billing_of(organization).token_billing:
        return UNPAID
    if key.max_tokens is not None and key.used >= key.max_tokens:
        return EXHAUSTED
    return None


def admits(place: Organization | None, organization: Organization) -> bool:
    """Return whether the server of a domain accepts keys of an organization.

    Parameters
    ----------
    place
        The Organization that serves the domain; None = none does.
    organization
        The Organization of the key.
    """
    if place is None:
        return False
    same = place.metadata.name == organization.metadata.name
    return same or place.spec.entitlements.public_inference
