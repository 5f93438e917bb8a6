"""A cache of collateral, the vendors that it fetches from, and the time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cloister_api.collateral import CollateralCache, CollateralSettings
from cloister_api.errors import ApiError
from cloister_clients.clock import utc_now
from tests.support.programs.maker_services import (
    CHIP,
    LEVELS,
    MakerServices,
    maker_services,
)

__all__ = [
    "AMD",
    "COLLATERAL_ADDRESSES",
    "DATED_ADDRESSES",
    "INTEL",
    "LISTED",
    "TCB",
    "CollateralWorld",
    "collateral_world",
]

AMD, INTEL = "https://kdsintf.amd.com", "https://api.trustedservices.intel.com"
LISTED = f"{AMD}/vcek/v1/Milan/crl"
TCB = f"{INTEL}/tdx/certification/v4/tcb?fmspc=50806f000000"
DATED_ADDRESSES = (
    LISTED,
    f"{AMD}/vlek/v1/Genoa/crl",
    TCB,
    f"{INTEL}/tdx/certification/v4/qe/identity",
    f"{INTEL}/sgx/certification/v4/pckcrl?ca=platform&encoding=der",
    "https://certificates.trustedservices.intel.com/IntelSGXRootCA.der",
)
"""Where revocation lists and levels are."""
COLLATERAL_ADDRESSES = (
    *DATED_ADDRESSES,
    f"{AMD}/vcek/v1/Turin/cert_chain",
    f"{AMD}/vcek/v1/Milan/{CHIP}?{LEVELS}",
    f"{AMD}/vcek/v1/Turin/{CHIP[:16]}?fmcSPL=1&{LEVELS}",
)
"""Those, and where certificates are."""


class CollateralWorld:
    """A cache, its vendors, and the time."""

    def __init__(self, makers: MakerServices) -> None:
        self.now = utc_now().replace(microsecond=0)
        self.makers = makers
        makers.now = self.now
        self.cache = self.replica()

    def settings_for(self, makers: MakerServices) -> CollateralSettings:
        """Return settings with the addresses of makers."""
        base = makers.base
        return CollateralSettings(amd=base, intel=base, intel_certificates=base)

    def replica(self, settings: CollateralSettings | None = None) -> CollateralCache:
        """Return the cache of one more replica, which may fetch elsewhere."""
        chosen = settings or self.settings_for(self.makers)
        return CollateralCache(chosen, lambda: self.now)

    async def refusal(self, address: str) -> ApiError:
        """Return the error of a request.

        Raises
        ------
        AssertionError
            When there is none.
        """
        try:
            await self.cache.get(address)
        except ApiError as error:
            return error
        raise AssertionError(f"{address} is answered")


@asynccontextmanager
async def collateral_world() -> AsyncIterator[CollateralWorld]:
    """Serve vendors on loopback, and open a cache."""
    with maker_services() as makers:
        world = CollateralWorld(makers)
        async with world.cache:
            yield world
