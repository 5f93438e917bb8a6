"""Deletes what the ledger need not keep of certificates; reads when they expire, for metrics."""

import asyncio
import logging
from collections.abc import Callable, Collection
from datetime import datetime, timedelta

from sqlalchemy.exc import SQLAlchemyError

from cloister_api.certificates.authority import CertificateAuthority
from cloister_api.certificates.limits import longest_window
from cloister_api.certificates.settings import (
    CertificateSettings,
)
from cloister_api.ledger.certificates import (
    CertificateOrders,
)
from cloister_clients.clock import Clock

logger = logging.getLogger(__name__)

ORDERS_KEPT = timedelta(days=30)
"""How long completed orders are kept at least; longer while their certificate is valid."""


KEYS_KEPT = timedelta(days=1)
"""How long the key of an enclave is kept at least: the cache may lack an Enclave that is young."""


SWEEP_SECONDS = 3600.0
"""Seconds between two sweeps."""


class CertificateSweep:
    """Sweeps completed orders, old submissions, and the keys of enclaves that are gone.

    Parameters
    ----------
    settings
        The issuer; of an ACME authority submissions are kept as long as its limits count them.
    orders
        Orders in the ledger.
    existing
        Returns the uids of all Enclaves; None if they are not known yet.
    """

    def __init__(
        self,
        settings: CertificateSettings,
        orders: CertificateOrders,
        existing: Callable[[], Collection[str] | None],
        clock: Clock,
    ) -> None:
        self._orders = orders
        self._existing = existing
        self._clock = clock
        acme = settings.acme
        self._window = longest_window(acme.limits) if acme else timedelta(0)

    async def run(self) -> None:
        """Sweep periodically until cancelled; several facades may do so concurrently."""
        while True:
            try:
                await self.sweep()
            except Exception:  # the ledger may be locked or unreachable for a while
                logger.exception("old orders of certificates cannot be deleted")
            await asyncio.sleep(SWEEP_SECONDS)

    async def sweep(self) -> None:
        """Sweep once."""
        now = self._clock()
        await self._orders.sweep(
            orders_before=now - ORDERS_KEPT, submissions_before=now - self._window, now=now
        )
        existing = self._existing()
        if existing is not None:
            await self._orders.drop_keys(bound_before=now - KEYS_KEPT, live=existing)


READ_SECONDS = 30.0
"""Seconds between two reads: one grouped query each."""


class CertificateExpiry:
    """Follows the certificates of the enclaves that exist; read by the metrics' thread.

    Parameters
    ----------
    orders
        Orders in the ledger.
    existing
        Returns the uids of all Enclaves; None if they are not known yet.
    authority
        The own authority; None if another issuer signs.
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
        """When the own authority's certificate expires, in UTC; None if there is none."""
        self.earliest: datetime | None = None
        """When the first certificate of an enclave expires, in UTC; None if there is none."""
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
