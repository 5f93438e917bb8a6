"""Builds the cache of what makers of processors publish."""

from cloister_api.assembly.infrastructure import Infrastructure
from cloister_api.collateral.cache import CollateralCache

__all__ = ["collateral_of"]


def collateral_of(base: Infrastructure) -> CollateralCache:
    """Build the cache, which is closed at its exit.

    Raises
    ------
    OSError
        When the file with the authorities cannot be read.
    """
    return CollateralCache(base.settings.collateral, base.clock, base.engine)
