"""When certificates expire, for the metrics: of enclaves by the ledger, of the authority itself."""

import asyncio
import logging
from collections.abc import Callable, Collection
from datetime import datetime

from sqlalchemy.exc import SQLAlchemyError

from cloister_api.certificates.authority import CertificateAuthority
from cloister_api.ledger.certificates import CertificateOrders

__all__ = ["CertificateExpiry"]

logger = logging.getLogger(__name__)

READ_SECONDS = 30.0
"""Seconds between two reads: one grouped query each."""


class CertificateExpiry:
    """Follows the certificates of the enclaves that exist; read by the metrics' thread.

    Parameters
    ----------
    orders
        Orders in the ledger.
    existing
        Returns the uids of all Enclaves; None = they are not known yet.
    authority
        The own authority; None = another issuer signs.
    """

    def __init__(
        self,
        orders: CertificateOrders,
        existing: Callable[[], Collection[str] | None],
        authority: CertificateAuthority | None,
    ) -> None:
        self._orders = orders
        self._existing = existing
        self.authority = authority.certificates[0].not_valid_after_utc if authority else None
        """When the own authority's certificate expires, in UTC; None = there is none."""
        self.earliest: datetime | None = None
        """When the first certificate of an enclave expires, in UTC; None = there is none."""
        self.failing = 0
        """How many queued orders have failed at least once."""

    async def run(self) -> None:
        """Read the ledger periodically until cancelled."""
        while True:
            try:
                await self.read()
            except SQLAlchemyError:  # the ledger may be locked or unreachable for a while
                logger.exception("the metrics of certificates are those of the last read")
            await asyncio.sleep(READ_SECONDS)

    async def read(self) -> None:
        """Read the ledger.

        Raises
        ------
        SQLAlchemyError
            When it does not respond.
        """
        self.failing = await self._orders.failing()
        existing = self._existing()
        if existing is not None:
            expiries = await self._orders.expiries()
            lives = (expiries[uid] for uid in existing if uid in expiries)
            self.earliest = min(lives, default=None)
