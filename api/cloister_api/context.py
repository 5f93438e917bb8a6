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

from cloister_api.accounts import Accounts, open_accounts
from cloister_api.auth.admin_key_cache import AdminKeyCache
from cloister_api.auth.authenticator import Authenticator
from cloister_api.auth.organizations import Organizations
from cloister_api.cache import ClusterCache
from cloister_api.certificates.account import AcmeAccount
from cloister_api.certificates.authority import CertificateAuthority
from cloister_api.certificates.challenges import ChallengeRecords
from cloister_api.certificates.queue import CertificateQueue
from cloister_api.ledger.audit import AuditTrail
from cloister_api.ledger.certificates import CertificateOrders
from cloister_api.ledger.database import migrate, open_ledger, place_of
from cloister_api.ledger.keys.admin_keys import AdminKeys
from cloister_api.ledger.keys.key_material import KeyMaterial, ReloadingKeyMaterial
from cloister_api.ledger.leases import Lease
from cloister_api.metering.loop import Metering
from cloister_api.metering.store import LEASE as RUNTIME
from cloister_api.metering.store import MeteringStore
from cloister_api.payments.payments import Payments, payments
from cloister_api.records.encoder import Encoder
from cloister_api.services.certificates import Certificates
from cloister_api.services.claims import HostnameClaims
from cloister_api.services.container_creator import ContainerCreator
from cloister_api.services.container_reader import ContainerReader
from cloister_api.services.container_updater import ContainerUpdater
from cloister_api.services.idempotency import IdempotentRequests
from cloister_api.services.measurement import MeasurementReader
from cloister_api.services.related import RelatedServices, related_services
from cloister_api.services.releases import ReleaseWebhooks, read_webhook_secret
from cloister_api.services.replacements import Replacements
from cloister_api.services.resolution import PullCredentials, ReleaseResolver
from cloister_api.services.validation import Validation
from cloister_api.settings import ApiSettings
from cloister_api.utilization.collector import LEASE, PERIODS, UtilizationCollector
from cloister_api.utilization.store import UtilizationStore
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
    cache: ClusterCache
    """Copies of custom resources."""
    admin_keys: AdminKeyCache
    """Admin keys in memory."""
    authenticate: Authenticator
    """Answers who asks."""
    audit: AuditTrail
    """Audit trail."""
    encoder: Encoder
    """Records as bytes."""
    reader: ContainerReader
    """Reads of containers."""
    measurements: MeasurementReader
    """Measurements of what serves."""
    creator: ContainerCreator
    """Creates containers."""
    updater: ContainerUpdater
    """Changes containers."""
    validation: Validation
    """Questions that change nothing."""
    certificates: Certificates
    """Certificates of enclaves."""
    accounts: Accounts
    """Regular keys and usage."""
    related: RelatedServices
    """What organizations have beside containers."""
    release_webhooks: ReleaseWebhooks
    """Release webhooks."""
    utilization: UtilizationStore
    """Utilization of containers."""
    payments: Payments
    """The payment processor."""


def material_of(settings: ApiSettings) -> KeyMaterial:
    """Read the key material; in development it is made at the first start.

    Raises
    ------
    MaterialError
        When it is missing or cannot be used.
    """
    path = settings.ledger.key_material
    if settings.development and not path.exists():
        logger.warning("development: making new key material in %s", path)
        return KeyMaterial.create(path)
    return KeyMaterial.read(path)


def authority_of(settings: ApiSettings) -> CertificateAuthority | None:
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
        return CertificateAuthority.create(
            own.certificate, own.key, name=AUTHORITY_NAME, now=utc_now()
        )
    return CertificateAuthority.read(own.certificate, own.key)


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
        AcmeAccount(acme)
        ChallengeRecords(acme.dns)


def queue_of(
    settings: ApiSettings, orders: CertificateOrders, clock: Clock, cache: ClusterCache
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
        entry = cache.enclaves.by_uid(uid)
        return not cache.enclaves.ready or (entry is not None and entry.value.live)

    return CertificateQueue(acme, orders, clock, wanted)


def collector_of(
    settings: ApiSettings,
    engine: AsyncEngine,
    client: KubeClient,
    cache: ClusterCache,
    utilization: UtilizationStore,
    clock: Clock,
) -> UtilizationCollector:
    """Make what collects utilization."""
    every = settings.utilization.every_seconds
    lease = Lease(engine, LEASE, str(uuid.uuid4()), PERIODS * every)
    return UtilizationCollector(client, cache, utilization, lease, clock, every=every)


def resolver_of(
    settings: ApiSettings, client: KubeClient, cache: ClusterCache, clock: Clock
) -> ReleaseResolver:
    """Make what looks releases and images up."""
    return ReleaseResolver(
        provider_from(settings.sources),
        RegistryClient(settings.registry),
        credentials=PullCredentials(client, cache, settings.registry.private_hosts),
        service=settings.service,
        clock=clock,
    )


def certificates_of(
    settings: ApiSettings,
    cache: ClusterCache,
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
        cache=cache,
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
    cache: ClusterCache,
    utilization: UtilizationStore,
    clock: Clock,
) -> Iterator[Coroutine[None, None, None]]:
    """Make the loops that collect utilization and, where it is wanted, meter run time."""
    yield collector_of(settings, engine, client, cache, utilization, clock).run()
    if settings.metering:
        lease = Lease(engine, RUNTIME, str(uuid.uuid4()), METERING_SECONDS)
        yield Metering(client, cache, MeteringStore(engine), lease, clock).run()


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
    material = ReloadingKeyMaterial(settings.ledger.key_material, material_of(settings))
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
        admin_keys = AdminKeyCache(AdminKeys(engine, material), material)
        await admin_keys.refresh()
        stack.push_async_callback(admin_keys.write_uses)
        cache = ClusterCache(client)
        resolver = resolver_of(settings, client, cache, clock)
        stack.push_async_callback(resolver.aclose)
        audit = AuditTrail(engine)
        orders = CertificateOrders(engine)
        queue = queue_of(settings, orders, clock, cache)
        certificates = certificates_of(settings, cache, orders, audit, clock, queue)
        accounts = await stack.enter_async_context(
            open_accounts(settings, engine, material, cache, clock)
        )
        utilization = UtilizationStore(engine)
        paying = await stack.enter_async_context(
            payments(settings.stripe, client, cache.organizations, audit, clock)
        )
        organizations = Organizations(client, cache.organizations, admin_keys, clock)
        context = build(
            settings,
            clock,
            client,
            cache,
            admin_keys,
            organizations,
            resolver,
            audit,
            certificates,
            accounts,
            utilization,
            paying,
        )
        await stack.enter_async_context(
            background(
                on_failure,
                admin_keys.run(),
                organizations.guard(),
                context.creator.replacements.run(),
                *counting(settings, engine, client, cache, utilization, clock),
                *accounts.loops,
                *([queue.run()] if queue else []),
                *([paying.run()] if paying.set_up else []),
                *(view.run() for view in cache.all),
            )
        )
        yield context


def updater_of(
    settings: ApiSettings,
    client: KubeClient,
    cache: ClusterCache,
    reader: ContainerReader,
    resolver: ReleaseResolver,
    claims: HostnameClaims,
) -> ContainerUpdater:
    """Make what changes containers."""
    return ContainerUpdater(
        client=client,
        cache=cache,
        reader=reader,
        resolver=resolver,
        claims=claims,
        containers_domain=settings.containers_domain,
        gitops_managers=settings.gitops_managers,
        webhooks=settings.webhooks.release_secret_file is not None,
    )


def build(
    settings: ApiSettings,
    clock: Clock,
    client: KubeClient,
    cache: ClusterCache,
    admin_keys: AdminKeyCache,
    organizations: Organizations,
    resolver: ReleaseResolver,
    audit: AuditTrail,
    certificates: Certificates,
    accounts: Accounts,
    utilization: UtilizationStore,
    paying: Payments,
) -> Context:
    """Put the services together."""
    reader = ContainerReader(client, cache, write_wait=settings.write_wait_seconds)
    idempotency = IdempotentRequests(client, audit)
    claims = HostnameClaims(client, clock)
    domain = settings.containers_domain
    webhook_secret = read_webhook_secret(settings.webhooks.release_secret_file)
    updater = updater_of(settings, client, cache, reader, resolver, claims)
    return Context(
        settings=settings,
        clock=clock,
        cache=cache,
        admin_keys=admin_keys,
        authenticate=Authenticator(admin_keys, organizations, clock),
        audit=audit,
        encoder=Encoder(domain),
        reader=reader,
        measurements=MeasurementReader(client),
        creator=ContainerCreator(
            client=client,
            cache=cache,
            reader=reader,
            resolver=resolver,
            claims=claims,
            idempotency=idempotency,
            replacements=Replacements(client, cache, reader, settings.gitops_managers),
            containers_domain=domain,
        ),
        updater=updater,
        validation=Validation(
            cache=cache,
            reader=reader,
            resolver=resolver,
            claims=claims,
            containers_domain=domain,
        ),
        certificates=certificates,
        accounts=accounts,
        related=related_services(
            settings, clock, client, cache, reader, resolver, updater, idempotency
        ),
        release_webhooks=ReleaseWebhooks(client, cache, webhook_secret, clock),
        utilization=utilization,
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
