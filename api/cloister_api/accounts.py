"""Keys and usage in a running facade: services over the ledger, and their background tasks.

Built by `cloister_api.context`; routes reach it through the context.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.auth.api_keys import ApiKeyCache, HostnameOwners
from cloister_api.auth.token_bucket import RateLimit, UnknownKeyLimit
from cloister_api.catalog import Catalog
from cloister_api.ledger.database import open_writer, place_of
from cloister_api.ledger.keys.admin_keys import Reporters
from cloister_api.ledger.keys.key_material import MaterialError, ReloadingKeyMaterial
from cloister_api.ledger.leases import Replicas
from cloister_api.metering.store import MeteringStore
from cloister_api.services.api_keys import ApiKeyService
from cloister_api.services.infrastructure import Infrastructure
from cloister_api.settings import ApiSettings
from cloister_api.usage.ingest import Ingest
from cloister_api.usage.queries import Breakdowns, UsageQueries
from cloister_api.usage.retention import prune, prune_audit
from cloister_api.usage.writer import UsageWriter
from cloister_clients.clock import Clock

logger = logging.getLogger(__name__)

PRUNE_SECONDS = 3600.0
"""Seconds between two deletions of expired usage."""
FOLLOW_SECONDS = 0.5
"""Seconds between two checks of the key material's file."""


@dataclass(frozen=True, slots=True)
class Accounts:
    """Services over the ledger."""

    keys: ApiKeyService
    """Regular keys for administrators."""
    key_cache: ApiKeyCache
    """Regular keys in memory."""
    material: ReloadingKeyMaterial
    """Key material."""
    catalog: Catalog
    """The model catalog."""
    ingest: Ingest
    """Reports of usage."""
    usage: UsageQueries
    """Queries of usage."""
    breakdowns: Breakdowns
    """Queries of usage by group."""
    runtime: MeteringStore
    """Run time of containers."""
    pruning: Callable[[], Coroutine[None, None, None]]
    """Deletes expired usage, until cancelled."""

    @property
    def loops(self) -> tuple[Coroutine[None, None, None], ...]:
        """The background tasks, which run until they are cancelled."""
        return (
            self.key_cache.run(),
            follow(self.material),
            self.catalog.run(),
            self.ingest.run(),
            self.pruning(),
        )


@contextlib.asynccontextmanager
async def open_accounts(
    base: Infrastructure, material: ReloadingKeyMaterial
) -> AsyncIterator[Accounts]:
    """Build the services; write what is not written yet at the end.

    Raises
    ------
    CatalogError
        When the model catalog cannot be used.
    """
    settings, engine, clock = base.settings, base.engine, base.clock
    service = base.installation.service
    catalog = Catalog(settings.catalog, service)
    limit = settings.key_check
    key_cache = ApiKeyCache(
        engine,
        material,
        HostnameOwners(base.cache, base.installation.containers_domain),
        clock,
        Replicas(engine, str(uuid.uuid4())),
        RateLimit(limit.rate_per_second, limit.burst) if limit.rate_per_second else None,
        UnknownKeyLimit(limit.unknown_per_second),
    )
    writing = open_writer(place_of(settings.ledger))
    reporters = Reporters(engine, material)
    await key_cache.refresh()
    await key_cache.beat()
    try:
        yield Accounts(
            keys=ApiKeyService(base, material),
            key_cache=key_cache,
            material=material,
            catalog=catalog,
            ingest=Ingest(reporters, UsageWriter(writing, material), service, clock),
            usage=UsageQueries(engine),
            breakdowns=Breakdowns(engine),
            runtime=MeteringStore(engine),
            pruning=partial(keep_pruned, engine, clock, settings),
        )
    finally:
        await key_cache.close()
        writing.dispose()


async def follow(material: ReloadingKeyMaterial) -> None:
    """Reload the key material when its file changes, until cancelled."""
    while True:
        await asyncio.sleep(FOLLOW_SECONDS)
        try:
            material.reload()
        except MaterialError:  # the material in memory stays in use
            logger.exception("the key material cannot be reloaded")


async def keep_pruned(engine: AsyncEngine, clock: Clock, settings: ApiSettings) -> None:
    """Delete expired usage and audit rows now and every hour, until cancelled."""
    while True:
        now = clock()
        try:
            await prune(engine, now, settings.usage.event_days)
            await prune_audit(engine, now - timedelta(days=settings.audit.days))
        except SQLAlchemyError:  # the next hour retries
            logger.exception("old rows of the ledger could not be deleted")
        await asyncio.sleep(PRUNE_SECONDS)
