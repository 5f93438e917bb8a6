"""Rate limit of each admin key: token buckets in memory, reported in the standard headers.

The headers are those of the IETF draft "RateLimit header fields for HTTP" (version 11):
``RateLimit-Policy: "key";q=<burst>;w=<seconds>`` and ``RateLimit: "key";r=<left>;t=<seconds>``.
"""

from math import ceil

from cloister_api.auth.token_bucket import RateLimit, TokenBucket, consume
from cloister_api.errors import ApiError

__all__ = ["AdminRateLimit"]


class AdminRateLimit:
    """The token buckets of all admin keys that were used.

    Parameters
    ----------
    rate
        The rate over all replicas; None = no limit.
    """

    def __init__(self, rate: RateLimit | None) -> None:
        self._rate = rate
        self._buckets: dict[str, TokenBucket] = {}

    def consume(self, key_id: str, replicas: int, now: float) -> tuple[tuple[str, str], ...]:
        """Take one token from a key's bucket, and return the headers that report the rest.

        Parameters
        ----------
        key_id
            The key.
        replicas
            How many replicas share the rate.
        now
            Monotonic time in seconds.

        Raises
        ------
        ApiError
            429 when the bucket is empty.
        """
        if self._rate is None:
            return ()
        rate = self._rate.shared(replicas)
        bucket = self._buckets.setdefault(key_id, TokenBucket())
        wait = consume(bucket, rate, now)
        window = ceil(rate.burst / rate.per_second)
        full = ceil((rate.burst - bucket.tokens) / rate.per_second)
        headers = (
            ("ratelimit-policy", f'"key";q={int(rate.burst)};w={window}'),
            ("ratelimit", f'"key";r={int(bucket.tokens)};t={full}'),
        )
        if wait:
            raise rate_limited(ceil(wait), headers)
        return headers


def rate_limited(wait: int, headers: tuple[tuple[str, str], ...]) -> ApiError:
    """Build a 429 with the time after which to try again."""
    unit = "second" if wait == 1 else "seconds"
    return ApiError(
        429,
        "RATE_LIMITED",
        f"rate limit of this key exceeded; try again in {wait} {unit}",
        retry_after=wait,
        headers=headers,
    )
