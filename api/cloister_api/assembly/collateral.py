"""Builds what gives enclaves the collateral of their processors."""

import contextlib
import time
from collections.abc import AsyncIterator

from cloister_api.assembly.infrastructure import Infrastructure
from cloister_api.collateral.cache import CollateralCache
from cloister_api.services.enclaves.collateral import EnclaveCollateral

__all__ = ["open_collateral"]


@contextlib.asynccontextmanager
async def open_collateral(base: Infrastructure) -> AsyncIterator[EnclaveCollateral]:
    """Build it, and close the connections to the makers at the end.

    Raises
    ------
    OSError
        When the file with the authorities cannot be read.
    """
    settings = base.settings.collateral
    async with CollateralCache(settings, base.clock, base.engine) as cache:
        yield EnclaveCollateral(cache, settings.requests_per_hour, time.monotonic)
