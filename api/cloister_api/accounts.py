"""What a running facade has of keys and usage: services over the ledger, and the loops they need.

Built by `cloister_api.context`; routes reach it through the context.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.catalog import Catalog
from cloister_api.keycheck.book import KeyBook
from cloister_api.keycheck.hosts import Hosts
from cloister_api.keycheck.rates import Rate
from cloister_api.ledger.apikeys import ApiKeys
from cloister_api.ledger.material import FollowedMaterial, MaterialError
from cloister_api.ledger.replicas import Replicas
from cloister_api.services.keys import Keys
from cloister_api.settings import ApiSettings
from cloister_api.views import Views
from cloister_clients.clock import Clock

__all__ = ["Accounts", "accounts"]

logger = logging.getLogger(__name__)

FOLLOW_SECONDS = 0.5
"""Seconds between two looks at the file of the key material."""


@dataclass(frozen=True, slots=True)
class Accounts:
    """Services over the ledger."""

    keys: Keys
    """Regular keys for administrators."""
    book: KeyBook
    """Regular keys in memory."""
    material: FollowedMaterial
    """Key material."""
    catalog: Catalog
    """The model catalog."""

    @property
    def loops(self) -> tuple[Coroutine[None, None, None], ...]:
        """What is to run beside."""
        return (self.book.run(), follow(self.material), self.catalog.run())


@contextlib.asynccontextmanager
async def accounts(
    settings: ApiSettings,
    engine: AsyncEngine,
    material: FollowedMaterial,
    views: Views,
    clock: Clock,
) -> AsyncIterator[Accounts]:
    """Build the services, and write at the end what is not written yet.

    Parameters
    ----------
    settings
        The administrator's settings.
    engine
        The ledger.
    material
        Key material.
    views
        Copies of custom resources.
    clock
        Tells the time.

    Raises
    ------
    CatalogError
        When the model catalog cannot be used.
    """
    catalog = Catalog(settings.catalog, settings.service)
    limit = settings.key_check
    book = KeyBook(
        engine,
        material,
        Hosts(views, settings.containers_domain),
        clock,
        Replicas(engine, str(uuid.uuid4())),
        Rate(limit.rate_per_second, limit.burst) if limit.rate_per_second else None,
    )
    await book.refresh()
    await book.beat()
    try:
        yield Accounts(
            keys=Keys(ApiKeys(engine, material), material, clock),
            book=book,
            material=material,
            catalog=catalog,
        )
    finally:
        await book.close()


async def follow(material: FollowedMaterial) -> None:
    """Take over changed key material until cancelled."""
    while True:
        await asyncio.sleep(FOLLOW_SECONDS)
        try:
            material.look()
        except MaterialError:  # the material in memory goes on being used
            logger.exception("the key material cannot be read anew")
