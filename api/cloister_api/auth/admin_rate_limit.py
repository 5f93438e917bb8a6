"""Rate limits of callers: token buckets in memory, reported in the standard headers.

The headers are those of the IETF draft "RateLimit header fields for HTTP" (version 11):
``RateLimit-Policy: "key";q=<burst>;w=<seconds>`` and ``RateLimit: "key";r=<left>;t=<seconds>``.
"""

from collections.abc import Sequence
from math import ceil

from cloister_api.auth.token_bucket import RateLimit, TokenBucket, consume
from cloister_api.errors import ApiError

__all__ = ["AdminRateLimit", "CallerRates"]

ResponseHeaders = tuple[tuple[str, str], ...]


class AdminRateLimit:
    """The token buckets of all callers of a kind.

    Parameters
    ----------
    rate
        The rate over all replicas; None = no limit.
    policy
        Name of the limit in the headers.
    of
        What is limited, in the message of the refusal.
    """

    def __init__(self, rate: RateLimit | None, policy: str = "key", of: str = "this key") -> None:
        self._rate = rate
        self._policy = policy
        self._of = of
        self._buckets: dict[str, TokenBucket] = {}

    def consume(self, caller: str, replicas: int, now: float) -> ResponseHeaders:
        """Take one token from a caller's bucket, and return the headers that report the rest.

        Parameters
        ----------
        caller
            The caller.
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
        bucket = self._buckets.setdefault(caller, TokenBucket())
        wait = consume(bucket, rate, now)
        window = ceil(rate.burst / rate.per_second)
        full = ceil((rate.burst - bucket.tokens) / rate.per_second)
        headers = (
            ("ratelimit-policy", f'"{self._policy}";q={int(rate.burst)};w={window}'),
            ("ratelimit", f'"{self._policy}";r={int(bucket.tokens)};t={full}'),
        )
        if wait:
            raise rate_limited(self._of, ceil(wait), headers)
        return headers


class CallerRates:
    """The rates of admin keys and sessions, and of the writes of organizations.

    Parameters
    ----------
    requests
        Of all requests of one key or session; None = no limit.
    writes
        Of the writes of one organization; None = no limit.
    """

    def __init__(self, requests: RateLimit | None, writes: RateLimit | None) -> None:
        self._requests = AdminRateLimit(requests)
        self._writes = AdminRateLimit(writes, "writes", "writes")

    def consume(
        self, caller: str, writer: str | None, replicas: int, now: float
    ) -> ResponseHeaders:
        """Count a request, and return the headers that report what is left.

        Parameters
        ----------
        caller
            The key or session.
        writer
            The organization whose writes it counts among; None = it writes nothing.
        replicas, now
            As `AdminRateLimit.consume`.

        Raises
        ------
        ApiError
            429 when a bucket is empty.
        """
        headers = self._requests.consume(caller, replicas, now)
        if writer is None:
            return headers
        return joined(headers, self._writes.consume(writer, replicas, now))


def joined(first: Sequence[tuple[str, str]], second: Sequence[tuple[str, str]]) -> ResponseHeaders:
    """Join the headers of two limits: each is a list of policies."""
    values: dict[str, list[str]] = {}
    for name, value in (*first, *second):
        values.setdefault(name, []).append(value)
    return tuple((name, ", ".join(each)) for name, each in values.items())


def rate_limited(of: str, wait: int, headers: ResponseHeaders) -> ApiError:
    """Build a 429 with the time after which to try again."""
    unit = "second" if wait == 1 else "seconds"
    return ApiError(
        429,
        "RATE_LIMITED",
        f"rate limit of {of} exceeded; try again in {wait} {unit}",
        retry_after=wait,
        headers=headers,
    )
