"""Admin keys: a cache of all of them for each request's check, and the rate limit of each."""

from collections.abc import Sequence
from datetime import datetime
from math import ceil

from typing_extensions import override

from cloister_api.auth.key_cache import KeyCache
from cloister_api.auth.token_bucket import RateLimit, TokenBucket, UnknownKeyLimit, consume
from cloister_api.errors import ApiError
from cloister_api.ledger.keys.admin_keys import AdminKey, AdminKeys
from cloister_api.ledger.keys.key_material import KeySealer


class AdminKeyCache(KeyCache[AdminKey]):
    """All admin keys, which are read again when one changed."""

    def __init__(self, keys: AdminKeys, material: KeySealer, unknown: UnknownKeyLimit) -> None:
        super().__init__(material, unknown, keys.used)
        self._keys = keys
        self._count = -1

    def all(self) -> list[AdminKey]:
        """Return all keys, revoked ones included."""
        return list(self._by_index.values())

    @override
    async def _read(self) -> None:
        count = await self._keys.change_count()
        if count != self._count:
            self._by_index = {key.index: key for key in await self._keys.all()}
            self._count = count

    async def revoke(self, key: AdminKey, *, because: str, now: datetime) -> None:
        """Revoke a key permanently, in the ledger and in memory."""
        await self._keys.revoke(key.id, because=because, now=now)
        await self.refresh()

    def note_use(self, key: AdminKey, now: datetime) -> None:
        """Record that a key was used; written later, with others."""
        self._uses[key.id] = now


ResponseHeaders = tuple[tuple[str, str], ...]


class AdminRateLimit:
    """The token buckets of all callers of a kind.

    Parameters
    ----------
    rate
        The rate over all replicas; None means no limit.
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
        Of all requests of one key or session; None means no limit.
    writes
        Of the writes of one organization; None means no limit.
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
        writer
            The organization whose writes it counts among; None if it writes nothing.
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
