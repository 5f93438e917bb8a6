"""How often one admin key may be used: credit in memory, told in the standard headers.

The headers are those of the IETF draft "RateLimit header fields for HTTP" (version 11):
``RateLimit-Policy: "key";q=<burst>;w=<seconds>`` and ``RateLimit: "key";r=<left>;t=<seconds>``.
"""

from math import ceil

from cloister_api.auth.token_bucket import RateLimit, TokenBucket, consume
from cloister_api.errors import ApiError

__all__ = ["AdminRateLimit"]


class AdminRateLimit:
    """The credit of every admin key that was used.

    Parameters
    ----------
    rate
        The rate over all replicas; None = no limit.
    """

    def __init__(self, rate: RateLimit | None) -> None:
        self._rate = rate
        self._credits: dict[str, TokenBucket] = {}

    def take(self, key_id: str, replicas: int, now: float) -> tuple[tuple[str, str], ...]:
        """Take one request from a key's credit, and answer the headers that tell of it.

        Parameters
        ----------
        key_id
            The key.
        replicas
            How many facades share the rate.
        now
            Monotonic time in seconds.

        Raises
        ------
        ApiError
            429 when there is no credit.
        """
        if self._rate is None:
            return ()
        rate = self._rate.shared(replicas)
        credit = self._credits.setdefault(key_id, TokenBucket())
        wait = consume(credit, rate, now)
        window = ceil(rate.burst / rate.per_second)
        full = ceil((rate.burst - credit.credit) / rate.per_second)
        headers = (
            ("ratelimit-policy", f'"key";q={int(rate.burst)};w={window}'),
            ("ratelimit", f'"key";r={int(credit.credit)};t={full}'),
        )
        if wait:
            raise rate_limited(ceil(wait), headers)
        return headers


def rate_limited(wait: int, headers: tuple[tuple[str, str], ...]) -> ApiError:
    """429 with the time after which to try again."""
    unit = "second" if wait == 1 else "seconds"
    return ApiError(
        429,
        "RATE_LIMITED",
        f"more requests with this key than are allowed; try again in {wait} {unit}",
        retry_after=wait,
        headers=headers,
    )
