"""Everything that a running facade has: clients, cache, ledger, services. Built once at start.

`create_app` enters it in its lifespan; routes reach it through the application's state.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.accounts import Accounts, open_accounts
from cloister_api.auth.admin_keys import AdminKeyCache
from cloister_api.auth.authenticator import Authenticator
from cloister_api.auth.organizations import Organizations
from cloister_api.auth.token_bucket import UnknownKeyLimit
from cloister_api.cache import ClusterCache
from cloister_api.certificates.authority import open_queue
from cloister_api.certificates.request import PermittedNames
from cloister_api.certificates.sweep import CertificateExpiry, CertificateSweep
from cloister_api.http.metrics import StateMetrics
from cloister_api.ledger.audit import AuditTrail
from cloister_api.ledger.certificates import CertificateOrders
from cloister_api.ledger.database import migrate, open_ledger, place_of
from cloister_api.ledger.keys.admin_keys import AdminKeys
from cloister_api.ledger.keys.key_material import KeyMaterial, KeySealer, ReloadingKeyMaterial
from cloister_api.ledger.keys.sessions import SessionLinks, SessionTable
from cloister_api.ledger.last_backup import LastBackup
from cloister_api.ledger.leases import Lease
from cloister_api.metering.loop import Metering
from cloister_api.metering.store import LEASE as METERING_LEASE
from cloister_api.metering.store import MeteringStore
from cloister_api.payments.payments import Payments, open_payments
from cloister_api.records.container import RecordSettings
from cloister_api.records.record_cache import RecordCache
from cloister_api.services.containers.creator import ContainerCreator, HostnameClaims
from cloister_api.services.containers.logs import ContainerLogs
from cloister_api.services.containers.reader import (
    ContainerReader,
    ContainerStatuses,
    MeasurementReader,
)
from cloister_api.services.containers.replacements import Replacements
from cloister_api.services.containers.resolution import Lookups, PullCredentials, ReleaseResolver
from cloister_api.services.containers.update_diff import UpdateDiffs
from cloister_api.services.containers.updater import ContainerUpdater
from cloister_api.services.containers.validation import Validation
from cloister_api.services.enclaves import Certificates, EnclaveCollateral, open_collateral
from cloister_api.services.infrastructure import Infrastructure
from cloister_api.services.releases import ReleaseWebhooks
from cloister_api.services.resources.deployments import Deployments
from cloister_api.services.resources.domains import Domains
from cloister_api.services.resources.members import MemberDesk
from cloister_api.services.resources.organization import AdminKeyDesk, OrganizationReader
from cloister_api.services.resources.registry_credentials import RegistryCredentials
from cloister_api.services.resources.secrets import Secrets
from cloister_api.services.resources.ssh_keys import SSHKeys
from cloister_api.sessions.sessions import Sessions
from cloister_api.sessions.settings import SessionSettings
from cloister_api.settings import ApiSettings
from cloister_api.utilization.collector import LEASE, PERIODS, UtilizationCollector
from cloister_api.utilization.gpus import GpuCollector, GpuExporters
from cloister_api.utilization.store import UtilizationStore
from cloister_clients.clock import Clock, utc_now
from cloister_clients.kube import KubeClient
from cloister_clients.lanes.outside import OutsideLanes
from cloister_clients.registry import Platform, RegistryClient
from cloister_clients.sources import provider_from
from cloister_crds.installation import InstallationSettings

if TYPE_CHECKING:
    from cloister_api.certificates.queue import CertificateQueue
    from cloister_api.sessions.provider.sign_in import ProviderSignIn

logger = logging.getLogger(__name__)

FIELD_MANAGER = "cloister-api"
"""Name under which the API server records what the facade writes."""

METERING_SECONDS = 15.0
"""Seconds after which another facade meters run time when this one is gone."""


@dataclass(frozen=True, slots=True)
class RelatedServices:
    """What an organization has in addition to containers (spec 7, 8)."""

    deployments: Deployments
    """Deployments."""
    secrets: Secrets
    """Secrets."""
    ssh_keys: SSHKeys
    """SSH keys."""
    domains: Domains
    """Custom domains."""
    registry_credentials: RegistryCredentials
    """Credentials of private registries."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a running facade has."""

    settings: ApiSettings
    """The administrator's settings."""
    installation: InstallationSettings
    """What the operator has published of its settings."""
    clock: Clock
    """The clock."""
    cache: ClusterCache
    """Custom resources in memory."""
    admin_keys: AdminKeyCache
    """Admin keys in memory."""
    authenticate: Authenticator
    """Finds the principal of a request."""
    audit: AuditTrail
    """Audit trail."""
    records: RecordSettings
    """What the records of containers depend on."""
    record_cache: RecordCache
    """Encoded records of containers."""
    organization: OrganizationReader
    """Reads organizations."""
    sessions: Sessions
    """Sessions of the dashboard."""
    sign_in: "ProviderSignIn | None"
    """Sign-in by the OpenID provider; None if there is none."""
    admin_key_desk: AdminKeyDesk
    """Admin keys, for administrators in the dashboard."""
    members: MemberDesk
    """Members of organizations, for their administrators in the dashboard."""
    reader: ContainerReader
    """Reads containers."""
    statuses: ContainerStatuses
    """Reports how containers are."""
    measurements: MeasurementReader
    """Measurements of active enclaves."""
    logs: ContainerLogs
    """Reads what debug containers write."""
    update_diffs: UpdateDiffs
    """Compares updates with what serves."""
    creator: ContainerCreator
    """Creates containers."""
    updater: ContainerUpdater
    """Changes and deletes containers."""
    validation: Validation
    """Checks that change nothing."""
    certificates: Certificates
    """Certificates of enclaves."""
    collateral: EnclaveCollateral
    """What the vendors of processors publish."""
    accounts: Accounts
    """Regular keys and usage."""
    related: RelatedServices
    """What organizations have in addition to containers."""
    release_webhooks: ReleaseWebhooks
    """Release webhooks."""
    utilization: UtilizationStore
    """Utilization of containers."""
    gpus: GpuCollector
    """Utilization of GPUs, of containers and Hosts."""
    payments: Payments
    """The payment processor."""
    state_metrics: StateMetrics
    """What the metrics read of all this."""


def material_of(settings: ApiSettings) -> KeyMaterial:
    """Read the key material; in development it is created at the first start.

    Raises
    ------
    MaterialError
        When it is missing or cannot be used.
    """
    path = settings.ledger.key_material
    if settings.development and not path.exists():
        logger.warning("development: creating new key material in %s", path)
        return KeyMaterial.create(path)
    return KeyMaterial.read(path)


@contextlib.asynccontextmanager
async def running(
    settings: ApiSettings,
    installation: InstallationSettings,
    client: KubeClient,
    on_failure: Callable[[], None],
    clock: Clock = utc_now,
) -> AsyncIterator[Context]:
    """Build everything, run the background tasks, and close all of it at the end.

    Parameters
    ----------
    on_failure
        Called when a background task has ended unexpectedly; the process must exit then.

    Raises
    ------
    AuthorityError, ConfigError, LedgerError, MaterialError, PaymentsError, SettingsError
        When the facade cannot start.
    """
    material = ReloadingKeyMaterial(settings.ledger.key_material, material_of(settings))
    async with contextlib.AsyncExitStack() as stack:
        engine = await opened_ledger(settings)
        stack.push_async_callback(engine.dispose)
        cache, audit = ClusterCache(client, installation.repositories), AuditTrail(engine)
        base = Infrastructure(settings, installation, clock, client, cache, engine, audit)
        unknown = UnknownKeyLimit(settings.admin_keys.unknown_per_second)
        admin_keys = AdminKeyCache(AdminKeys(engine, material), material, unknown)
        await admin_keys.refresh()
        stack.push_async_callback(admin_keys.write_uses)
        resolver = resolver_of(base)
        stack.push_async_callback(resolver.aclose)
        accounts = await stack.enter_async_context(open_accounts(base, material))
        paying = await stack.enter_async_context(
            open_payments(settings.stripe, client, cache.organizations, base.audit, clock)
        )
        organizations = Organizations(client, cache.organizations, admin_keys, clock)
        orders, utilization = CertificateOrders(engine), UtilizationStore(engine)
        queue = open_queue(settings.certificates, orders, clock, permitted_names_of(base))
        certificates = Certificates(base, orders, permitted_names_of(base), queue)
        expiry, metering = expiry_of(base, orders, certificates), metering_of(base)
        backup = LastBackup(audit)
        context = build(
            base,
            state_metrics=StateMetrics(admin_keys, accounts.key_cache, metering, expiry, backup),
            admin_keys=admin_keys,
            organizations=organizations,
            sessions=sessions_of(base, material),
            sign_in=await stack.enter_async_context(open_sign_in(base, material)),
            admin_key_desk=AdminKeyDesk(base, admin_keys, material),
            resolver=resolver,
            certificates=certificates,
            collateral=await stack.enter_async_context(open_collateral(settings.collateral, clock)),
            accounts=accounts,
            utilization=utilization,
            gpus=await stack.enter_async_context(open_gpu_collector(base)),
            payments=paying,
        )
        loops = background(
            on_failure,
            admin_keys.run(),
            backup.run(),
            organizations.guard(),
            context.creator.replacements.run(),
            collector_of(base, utilization, context.gpus).run(),
            *([metering.run()] if metering else []),
            *accounts.loops,
            *certificate_loops(base, orders, queue, expiry),
            *([paying.run()] if paying.set_up else []),
            *(reflector.run() for reflector in cache.all),
        )
        await stack.enter_async_context(loops)
        yield context


@contextlib.asynccontextmanager
async def open_sign_in(
    base: Infrastructure, material: KeySealer
) -> AsyncIterator["ProviderSignIn | None"]:
    """Build it, and close its connections at the end; None means the settings name no provider.

    Raises
    ------
    SettingsError
        When the authorities of the settings cannot be read.
    """
    dashboard = base.settings.dashboard
    if dashboard is None or dashboard.oidc is None:
        yield None
        return
    from cloister_api.sessions.provider.client import (  # noqa: PLC0415 - where it is needed
        ProviderClient,
    )
    from cloister_api.sessions.provider.sign_in import (  # noqa: PLC0415 - imports PyJWT
        ProviderSignIn,
    )

    client = ProviderClient(dashboard.oidc, base.clock)
    try:
        yield ProviderSignIn(dashboard.oidc, dashboard.address, client, material, base.clock)
    finally:
        await client.aclose()


def resolver_of(base: Infrastructure) -> ReleaseResolver:
    """Build the resolver of releases and images."""
    settings, installation = base.settings, base.installation
    # Which file is read, and how large it may be, is the operator's word.
    sources = settings.sources.model_copy(update=installation.of_sources)
    lanes = OutsideLanes(
        total=settings.lookups.at_once,
        per_organization=settings.lookups.per_organization,
        sources=sources,
        clock=base.clock,
    )
    lookups = Lookups(
        provider_from(sources),
        RegistryClient(settings.registry),
        lanes=lanes,
        platform=Platform.parse(installation.platform),
        settings=settings.lookups,
        clock=base.clock,
    )
    return ReleaseResolver(
        lookups,
        credentials=PullCredentials(base),
        installation=installation,
    )


async def opened_ledger(settings: ApiSettings) -> AsyncEngine:
    """Migrate the ledger, and open it.

    Raises
    ------
    LedgerError
        When it cannot be opened.
    """
    place = place_of(settings.ledger)
    await asyncio.to_thread(migrate, place)
    return open_ledger(place)


def sessions_of(base: Infrastructure, material: KeySealer) -> Sessions:
    """Build the sessions of the dashboard.

    Raises
    ------
    SettingsError
        When the dashboard's address is among those of containers.
    """
    dashboard, domain = base.settings.dashboard, base.installation.containers_domain
    if dashboard is not None:
        dashboard.require_apart(domain)
    return Sessions(
        SessionTable(base.engine, material),
        SessionLinks(base.engine, material),
        base.cache,
        base.audit,
        base.clock,
        dashboard.session if dashboard is not None else SessionSettings(),
    )


def build(
    base: Infrastructure,
    *,
    admin_keys: AdminKeyCache,
    organizations: Organizations,
    sessions: Sessions,
    sign_in: "ProviderSignIn | None",
    admin_key_desk: AdminKeyDesk,
    resolver: ReleaseResolver,
    certificates: Certificates,
    collateral: EnclaveCollateral,
    accounts: Accounts,
    utilization: UtilizationStore,
    gpus: GpuCollector,
    payments: Payments,
    state_metrics: StateMetrics,
) -> Context:
    """Build the services of containers, and combine all services."""
    reader, claims = ContainerReader(base), HostnameClaims(base)
    changing = partial(ContainerUpdater, base, reader, claims)
    replacements = Replacements(base, reader)
    shown = RecordSettings(base.installation.containers_domain, webhooks=base.settings.webhooks.on)
    return Context(
        settings=base.settings,
        installation=base.installation,
        clock=base.clock,
        cache=base.cache,
        admin_keys=admin_keys,
        authenticate=Authenticator(admin_keys, organizations, base.clock),
        audit=base.audit,
        records=shown,
        record_cache=RecordCache(shown),
        sessions=sessions,
        sign_in=sign_in,
        admin_key_desk=admin_key_desk,
        members=MemberDesk(base, admin_key_desk),
        organization=OrganizationReader(base, admin_keys),
        reader=reader,
        statuses=ContainerStatuses(base),
        measurements=MeasurementReader(base),
        logs=ContainerLogs(base),
        update_diffs=UpdateDiffs(base),
        creator=ContainerCreator(base, reader, resolver, claims, replacements),
        updater=changing(resolver),
        validation=Validation(base, reader, resolver, claims, replacements),
        certificates=certificates,
        collateral=collateral,
        accounts=accounts,
        related=RelatedServices(
            deployments=Deployments(base, resolver, changing, shown),
            secrets=Secrets(base, reader),
            ssh_keys=SSHKeys(base, reader),
            domains=Domains(base, reader),
            registry_credentials=RegistryCredentials(base),
        ),
        release_webhooks=ReleaseWebhooks(base),
        utilization=utilization,
        gpus=gpus,
        payments=payments,
        state_metrics=state_metrics,
    )


def permitted_names_of(base: Infrastructure) -> PermittedNames:
    """Return which names enclaves may have certified."""
    return PermittedNames(base.cache, base.clock, base.installation.containers_domain)


def expiry_of(
    base: Infrastructure, orders: CertificateOrders, certificates: Certificates
) -> CertificateExpiry | None:
    """Follow when certificates expire; None if nobody signs them."""
    if not base.settings.certificates:
        return None
    return CertificateExpiry(orders, permitted_names_of(base).existing, certificates.authority)


def certificate_loops(
    base: Infrastructure,
    orders: CertificateOrders,
    queue: "CertificateQueue | None",
    expiry: CertificateExpiry | None,
) -> list[Coroutine[None, None, None]]:
    """Return the background tasks of enclaves' certificates; empty if nobody signs them."""
    issuer = base.settings.certificates
    if not issuer or not expiry:
        return []
    sweep = CertificateSweep(issuer, orders, permitted_names_of(base).existing, base.clock)
    return [sweep.run(), expiry.run(), *([queue.run()] if queue else [])]


@contextlib.asynccontextmanager
async def open_gpu_collector(base: Infrastructure) -> AsyncIterator[GpuCollector]:
    """Build the collector of GPUs, and close its connections at the end."""
    longest = PERIODS * base.settings.utilization.every_seconds
    exporters = GpuExporters()
    try:
        yield GpuCollector(base.cache, exporters, base.clock, longest=longest)
    finally:
        await exporters.aclose()


def collector_of(
    base: Infrastructure, store: UtilizationStore, gpus: GpuCollector
) -> UtilizationCollector:
    """Build the collector of utilization."""
    every = base.settings.utilization.every_seconds
    lease = Lease(base.engine, LEASE, str(uuid.uuid4()), PERIODS * every)
    return UtilizationCollector(
        base.client, base.cache, store, lease, base.clock, gpus, every=every
    )


def metering_of(base: Infrastructure) -> Metering | None:
    """Build the metering of run time; None if the operator does not want it."""
    if not base.installation.metering:
        return None
    lease = Lease(base.engine, METERING_LEASE, str(uuid.uuid4()), METERING_SECONDS)
    store = MeteringStore(base.engine)
    return Metering(base.client, base.cache, store, lease, base.clock)


@contextlib.asynccontextmanager
async def background(
    on_failure: Callable[[], None], *loops: Coroutine[None, None, None]
) -> AsyncIterator[None]:
    """Run background tasks; one that ends unexpectedly is a failure of the whole facade."""
    ending = False

    def ended(task: asyncio.Task[None]) -> None:
        if ending or task.cancelled():
            return
        logger.critical(
            "a background task ended: %r; the facade stops", task, exc_info=task.exception()
        )
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
