"""What vendors of processors publish, for enclaves: each at a rate of its own (spec 26.4)."""

import contextlib
import time
from collections.abc import AsyncIterator, Callable
from math import ceil

from cachetools import LRUCache

from cloister_api.auth.token_bucket import RateLimit, TokenBucket, consume
from cloister_api.collateral import CollateralAnswer, CollateralCache, CollateralSettings
from cloister_api.errors import ApiError
from cloister_clients.clock import Clock

__all__ = ["EnclaveCollateral", "open_collateral"]

HOUR = 3600.0
ENCLAVES = 65_536
"""Rates that are kept; the least recently used are forgotten."""


class EnclaveCollateral:
    """Gives enclaves what vendors publish.

    Parameters
    ----------
    cache
        What they publish.
    per_hour
        Requests of one enclave in an hour, and at once after a pause.
    monotonic
        Monotonic time in seconds.
    """

    def __init__(
        self, cache: CollateralCache, per_hour: int, monotonic: Callable[[], float]
    ) -> None:
        self.cache = cache
        """What they publish."""
        self._rate = RateLimit(per_hour / HOUR, float(per_hour))
        self._monotonic = monotonic
        self._buckets: LRUCache[str, TokenBucket] = LRUCache(ENCLAVES)

    async def get(self, enclave_uid: str, address: str) -> CollateralAnswer:
        """Return what a vendor publishes at an address.

        Parameters
        ----------
        enclave_uid
            Who requests it.
        address
            The vendor's address.

        Raises
        ------
        ApiError
            429 when the enclave requests too much, else as `CollateralCache.get`.
        """
        self._take(enclave_uid)
        return await self.cache.get(address)

    def _take(self, uid: str) -> None:
        """Count a request.

        Raises
        ------
        ApiError
            429 when there were too many.
        """
        bucket = self._buckets.get(uid)
        if bucket is None:
            bucket = self._buckets[uid] = TokenBucket()
        wait = consume(bucket, self._rate, self._monotonic())
        if wait:
            raise ApiError(
                429,
                "RATE_LIMITED",
                "this enclave has requested collateral too often (collateral.requestsPerHour); "
                "keep what it has, and try again after Retry-After",
                retry_after=ceil(wait),
            )


@contextlib.asynccontextmanager
async def open_collateral(
    settings: CollateralSettings, clock: Clock
) -> AsyncIterator[EnclaveCollateral]:
    """Open the cache, and close its connections at the end.

    Raises
    ------
    OSError
        When the file with the authorities cannot be read.
    """
    async with CollateralCache(settings, clock) as cache:
        yield EnclaveCollateral(cache, settings.requests_per_hour, time.monotonic)
