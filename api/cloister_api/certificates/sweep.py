"""Deletes what the ledger need not keep of certificates, whoever signs them."""

import asyncio
import logging
from collections.abc import Callable, Collection
from datetime import timedelta

from cloister_api.certificates.limits import longest_window
from cloister_api.certificates.settings import CertificateSettings
from cloister_api.ledger.certificates import CertificateOrders
from cloister_clients.clock import Clock

__all__ = ["CertificateSweep"]

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
        Returns the uids of all Enclaves; None = they are not known yet.
    clock
        The clock.
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
        """Sweep periodically until cancelled; several facades may do so at once."""
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
