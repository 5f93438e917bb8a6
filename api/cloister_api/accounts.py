"""What a running facade has of keys and usage: services over the ledger, and the loops they need.

Built by `cloister_api.context`; routes reach it through the context.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from functools import partial

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.auth.api_keys.cache import KeyBook
from cloister_api.auth.api_keys.hosts import Hosts
from cloister_api.auth.token_bucket import Rate
from cloister_api.cache import Views
from cloister_api.catalog import Catalog
from cloister_api.ledger.audit import AuditTrail
from cloister_api.ledger.database import open_writer, place_of
from cloister_api.ledger.keys.api_keys import ApiKeys
from cloister_api.ledger.keys.key_material import FollowedMaterial, MaterialError
from cloister_api.ledger.keys.reporters import Reporters
from cloister_api.ledger.replicas import Replicas
from cloister_api.services.api_keys import Keys
from cloister_api.settings import ApiSettings
from cloister_api.usage.ingest import Ingest
from cloister_api.usage.queries import Usage
from cloister_api.usage.retention import prune
from cloister_api.usage.writer import Writer
from cloister_clients.clock import Clock

__all__ = ["Accounts", "accounts"]

logger = logging.getLogger(__name__)

PRUNE_SECONDS = 3600.0
"""Seconds between two looks for what is too old."""
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
    ingest: Ingest
    """Reports of usage."""
    usage: Usage
    """Questions about usage."""
    pruning: Callable[[], Coroutine[None, None, None]]
    """Deletes what is too old, until cancelled."""

    @property
    def loops(self) -> tuple[Coroutine[None, None, None], ...]:
        """What is to run beside."""
        return (
            self.book.run(),
            follow(self.material),
            self.catalog.run(),
            self.ingest.run(),
            self.pruning(),
        )


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
    writing = open_writer(place_of(settings.ledger))
    reporters = Reporters(engine, material)
    await book.refresh()
    await book.beat()
    try:
        yield Accounts(
            keys=Keys(ApiKeys(engine, material), material, AuditTrail(engine), clock),
            book=book,
            material=material,
            catalog=catalog,
            ingest=Ingest(reporters, Writer(writing, material), settings.service, clock),
            usage=Usage(engine),
            pruning=partial(keep_pruned, engine, clock, settings.usage.event_days),
        )
    finally:
        await book.close()
        writing.dispose()


async def follow(material: FollowedMaterial) -> None:
    """Take over changed key material until cancelled."""
    while True:
        await asyncio.sleep(FOLLOW_SECONDS)
        try:
            material.look()
        except MaterialError:  # the material in memory goes on being used
            logger.exception("the key material cannot be read anew")


async def keep_pruned(engine: AsyncEngine, clock: Clock, event_days: int) -> None:
    """Delete what is too old now and every hour, until cancelled."""
    while True:
        try:
            await prune(engine, clock(), event_days)
        except SQLAlchemyError:  # the next hour finds the same
            logger.exception("old usage could not be deleted")
        await asyncio.sleep(PRUNE_SECONDS)
