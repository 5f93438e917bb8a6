"""Everything that a running facade has: clients, copies, ledger, services. Built once at start.

`create_app` enters it in its lifespan; routes reach it through the application's state.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.accounts import Accounts, accounts
from cloister_api.auth.admin_key_cache import KeyRing
from cloister_api.auth.authenticator import Authenticator
from cloister_api.auth.organizations import Organizations
from cloister_api.cache import Views
from cloister_api.certificates.account import Account
from cloister_api.certificates.authority import Authority
from cloister_api.certificates.challenges import ChallengeRecords
from cloister_api.certificates.queue import CertificateQueue
from cloister_api.ledger.audit import AuditTrail
from cloister_api.ledger.certificates import CertificateOrders
from cloister_api.ledger.database import migrate, open_ledger, place_of
from cloister_api.ledger.keys.admin_keys import AdminKeys
from cloister_api.ledger.keys.key_material import FollowedMaterial, Material
from cloister_api.ledger.leases import Lease
from cloister_api.metering.loop import Metering
from cloister_api.metering.store import LEASE as RUNTIME
from cloister_api.metering.store import RuntimeBook
from cloister_api.payments.payments import Payments, payments
from cloister_api.records.encoder import Encoder
from cloister_api.services.certificates import Certificates
from cloister_api.services.claims import Claims
from cloister_api.services.container_creator import Creation
from cloister_api.services.container_reader import Reading
from cloister_api.services.container_updater import Changing
from cloister_api.services.idempotency import Repetitions
from cloister_api.services.measurement import Measuring
from cloister_api.services.related import Related, related
from cloister_api.services.releases import Releases, read_webhook_secret
from cloister_api.services.replacements import Replacements
from cloister_api.services.resolution import PullCredentials, Resolution
from cloister_api.services.validation import Validation
from cloister_api.settings import ApiSettings
from cloister_api.utilization.collector import LEASE, PERIODS, Collector
from cloister_api.utilization.store import Series
from cloister_clients.clock import Clock, utc_now
from cloister_clients.kube import KubeClient, KubeConfig
from cloister_clients.registry import RegistryClient
from cloister_clients.sources import provider_from

__all__ = ["FIELD_MANAGER", "Context", "check_issuer", "material_of", "running"]

logger = logging.getLogger(__name__)

FIELD_MANAGER = "cloister-api"
"""Name under which the API server records what the facade writes."""

METERING_SECONDS = 15.0
"""Seconds after which another facade meters run time when this one is gone."""
AUTHORITY_NAME = "Cloister development authority"
"""Common name of the authority that a development installation makes."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a running facade has."""

    settings: ApiSettings
    """The administrator's settings."""
    clock: Clock
    """Tells the time."""
    views: Views
    """Copies of custom resources."""
    ring: KeyRing
    """Admin keys in memory."""
    authenticate: Authenticator
    """Answers who asks."""
    audit: AuditTrail
    """Audit trail."""
    encoder: Encoder
    """Records as bytes."""
    reading: Reading
    """Reads of containers."""
    measuring: Measuring
    """Measurements of what serves."""
    creation: Creation
    """Creates containers."""
    changing: Changing
    """Changes containers."""
    validation: Validation
    """Questions that change nothing."""
    certificates: Certificates
    """Certificates of enclaves."""
    accounts: Accounts
    """Regular keys and usage."""
    related: Related
    """What organizations have beside containers."""
    releases: Releases
    """Release webhooks."""
    series: Series
    """Utilization of containers."""
    payments: Payments
    """The payment processor."""


def material_of(settings: ApiSettings) -> Material:
    """Read the key material; in development it is made at the first start.

    Raises
    ------
    MaterialError
        When it is missing or cannot be used.
    """
    path = settings.ledger.key_material
    if settings.development and not path.exists():
        logger.warning("development: making new key material in %s", path)
        return Material.create(path)
    return Material.read(path)


def authority_of(settings: ApiSettings) -> Authority | None:
    """Read the own authority; in development it is made at the first start; None = none signs.

    Raises
    ------
    AuthorityError
        When it is missing or cannot be used.
    """
    own = settings.certificates and settings.certificates.own
    if not own:
        return None
    if settings.development and not own.key.exists() and not own.certificate.exists():
        logger.warning("development: making a new certificate authority in %s", own.certificate)
        return Authority.create(own.certificate, own.key, name=AUTHORITY_NAME, now=utc_now())
    return Authority.read(own.certificate, own.key)


def check_issuer(settings: ApiSettings) -> None:
    """Read every key and certificate that signing needs, to tell early what is missing.

    Raises
    ------
    AuthorityError
        When one cannot be used.
    """
    authority_of(settings)
    acme = settings.certificates and settings.certificates.acme
    if acme:
        Account(acme)
        ChallengeRecords(acme.dns)


def queue_of(
    settings: ApiSettings, orders: CertificateOrders, clock: Clock, views: Views
) -> CertificateQueue | None:
    """Make the queue of the ACME account; None = there is none.

    Raises
    ------
    AuthorityError
        When one of its keys cannot be read.
    """
    acme = settings.certificates and settings.certificates.acme
    if not acme:
        return None

    def wanted(uid: str) -> bool:
        entry = views.enclaves.by_uid(uid)
        return not views.enclaves.ready or (entry is not None and entry.value.live)

    return CertificateQueue(acme, orders, clock, wanted)


def collector_of(
    settings: ApiSettings,
    engine: AsyncEngine,
    client: KubeClient,
    views: Views,
    series: Series,
    clock: Clock,
) -> Collector:
    """Make what collects utilization."""
    every = settings.utilization.every_seconds
    lease = Lease(engine, LEASE, str(uuid.uuid4()), PERIODS * every)
    return Collector(client, views, series, lease, clock, every=every)


def resolution_of(
    settings: ApiSettings, client: KubeClient, views: Views, clock: Clock
) -> Resolution:
    """Make what looks releases and images up."""
    return Resolution(
        provider_from(settings.sources),
        RegistryClient(settings.registry),
        credentials=PullCredentials(client, views, settings.registry.private_hosts),
        service=settings.service,
        clock=clock,
    )


def certificates_of(
    settings: ApiSettings,
    views: Views,
    orders: CertificateOrders,
    audit: AuditTrail,
    clock: Clock,
    queue: CertificateQueue | None,
) -> Certificates:
    """Make what signs certificates of enclaves.

    Raises
    ------
    AuthorityError
        When the own authority cannot be used.
    """
    return Certificates(
        views=views,
        orders=orders,
        audit=audit,
        clock=clock,
        settings=settings.certificates,
        authority=authority_of(settings),
        wake=queue.wake if queue else lambda: None,
    )


def counting(
    settings: ApiSettings,
    engine: AsyncEngine,
    client: KubeClient,
    views: Views,
    series: Series,
    clock: Clock,
) -> Iterator[Coroutine[None, None, None]]:
    """Make the loops that collect utilization and, where it is wanted, meter run time."""
    yield collector_of(settings, engine, client, views, series, clock).run()
    if settings.metering:
        lease = Lease(engine, RUNTIME, str(uuid.uuid4()), METERING_SECONDS)
        yield Metering(client, views, RuntimeBook(engine), lease, clock).run()


@contextlib.asynccontextmanager
async def running(
    settings: ApiSettings, on_failure: Callable[[], None], clock: Clock = utc_now
) -> AsyncIterator[Context]:
    """Build everything, keep the copies going, and take all down at the end.

    Parameters
    ----------
    settings
        The administrator's settings.
    on_failure
        Called when something that must go on has ended; the process is to end then.
    clock
        Tells the time.

    Raises
    ------
    AuthorityError, ConfigError, LedgerError, MaterialError, PaymentsError
        When the facade cannot start.
    """
    material = FollowedMaterial(settings.ledger.key_material, material_of(settings))
    place = place_of(settings.ledger)
    await asyncio.to_thread(migrate, place)
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            KubeClient(
                KubeConfig.load(settings.kubeconfig, settings.kube_context),
                field_manager=FIELD_MANAGER,
                user_agent=FIELD_MANAGER,
            )
        )
        engine = open_ledger(place)
        stack.push_async_callback(engine.dispose)
        ring = KeyRing(AdminKeys(engine, material), material)
        await ring.refresh()
        stack.push_async_callback(ring.write_uses)
        views = Views(client)
        resolution = resolution_of(settings, client, views, clock)
        stack.push_async_callback(resolution.aclose)
        audit = AuditTrail(engine)
        orders = CertificateOrders(engine)
        queue = queue_of(settings, orders, clock, views)
        certificates = certificates_of(settings, views, orders, audit, clock, queue)
        books = await stack.enter_async_context(accounts(settings, engine, material, views, clock))
        series = Series(engine)
        paying = await stack.enter_async_context(
            payments(settings.stripe, client, views.organizations, audit, clock)
        )
        organizations = Organizations(client, views.organizations, ring, clock)
        context = build(
            settings,
            clock,
            client,
            views,
            ring,
            organizations,
            resolution,
            audit,
            certificates,
            books,
            series,
            paying,
        )
        await stack.enter_async_context(
            background(
                on_failure,
                ring.run(),
                organizations.guard(),
                context.creation.replacements.run(),
                *counting(settings, engine, client, views, series, clock),
                *books.loops,
                *([queue.run()] if queue else []),
                *([paying.run()] if paying.set_up else []),
                *(view.run() for view in views.all),
            )
        )
        yield context


def changing_of(
    settings: ApiSettings,
    client: KubeClient,
    views: Views,
    reading: Reading,
    resolution: Resolution,
    claims: Claims,
) -> Changing:
    """Make what changes containers."""
    return Changing(
        client=client,
        views=views,
        reading=reading,
        resolution=resolution,
        claims=claims,
        containers_domain=settings.containers_domain,
        gitops_managers=settings.gitops_managers,
        webhooks=settings.webhooks.release_secret_file is not None,
    )


def build(
    settings: ApiSettings,
    clock: Clock,
    client: KubeClient,
    views: Views,
    ring: KeyRing,
    organizations: Organizations,
    resolution: Resolution,
    audit: AuditTrail,
    certificates: Certificates,
    books: Accounts,
    series: Series,
    paying: Payments,
) -> Context:
    """Put the services together."""
    reading = Reading(client, views, write_wait=settings.write_wait_seconds)
    repetitions = Repetitions(client, audit)
    claims = Claims(client, clock)
    domain = settings.containers_domain
    webhook_secret = read_webhook_secret(settings.webhooks.release_secret_file)
    changing = changing_of(settings, client, views, reading, resolution, claims)
    return Context(
        settings=settings,
        clock=clock,
        views=views,
        ring=ring,
        authenticate=Authenticator(ring, organizations, clock),
        audit=audit,
        encoder=Encoder(domain),
        reading=reading,
        measuring=Measuring(client),
        creation=Creation(
            client=client,
            views=views,
            reading=reading,
            resolution=resolution,
            claims=claims,
            repetitions=repetitions,
            replacements=Replacements(client, views, reading, settings.gitops_managers),
            containers_domain=domain,
        ),
        changing=changing,
        validation=Validation(
            views=views,
            reading=reading,
            resolution=resolution,
            claims=claims,
            containers_domain=domain,
        ),
        certificates=certificates,
        accounts=books,
        related=related(settings, clock, client, views, reading, resolution, changing, repetitions),
        releases=Releases(client, views, webhook_secret, clock),
        series=series,
        payments=paying,
    )


@contextlib.asynccontextmanager
async def background(
    on_failure: Callable[[], None], *loops: Coroutine[None, None, None]
) -> AsyncIterator[None]:
    """Run loops beside; one that ends by itself is a failure of the whole."""
    ending = False

    def ended(task: asyncio.Task[None]) -> None:
        if ending or task.cancelled():
            return
        logger.critical("a loop ended: %r; the facade stops", task, exc_info=task.exception())
        on_failure()

    tasks = [asyncio.create_task(loop) for loop in loops]
    for task in tasks:
        task.add_done_callback(ended)
    try:
        yield
    finally:
        ending = True
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
