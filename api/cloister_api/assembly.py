"""Builds the services from the infrastructure that they share."""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.auth.admin_keys import AdminKeyCache
from cloister_api.cache import ClusterCache
from cloister_api.ledger.audit import AuditTrail
from cloister_api.ledger.keys.admin_keys import AdminKeys
from cloister_api.ledger.keys.key_material import KeySealer
from cloister_api.records.container import RecordSettings
from cloister_api.services.containers.creator import ContainerCreator, HostnameClaims
from cloister_api.services.containers.reader import ContainerReader
from cloister_api.services.containers.replacements import Replacements
from cloister_api.services.containers.resolution import Lookups, PullCredentials, ReleaseResolver
from cloister_api.services.containers.updater import ContainerUpdater
from cloister_api.services.containers.validation import Validation
from cloister_api.services.core_secrets import CoreSecrets
from cloister_api.services.preconditions import IdempotentRequests
from cloister_api.services.resources.deployments import Deployments
from cloister_api.services.resources.domains import Domains
from cloister_api.services.resources.members import MemberDesk
from cloister_api.services.resources.organization import AdminKeyDesk, OrganizationReader
from cloister_api.services.resources.registry_credentials import RegistryCredentials
from cloister_api.services.resources.secrets import Secrets
from cloister_api.services.resources.ssh_keys import SSHKeys
from cloister_api.settings import ApiSettings
from cloister_clients.clock import Clock
from cloister_clients.kube import KubeClient
from cloister_clients.lanes.outside import OutsideLanes
from cloister_clients.registry import Platform, RegistryClient
from cloister_clients.sources import provider_from
from cloister_crds.installation import InstallationSettings


@dataclass(frozen=True, slots=True)
class Infrastructure:
    """What the services are built on."""

    settings: ApiSettings
    """The administrator's settings."""
    installation: InstallationSettings
    """What the operator has published of its settings."""
    clock: Clock
    """The clock."""
    client: KubeClient
    """Client of the cluster."""
    cache: ClusterCache
    """Custom resources in memory."""
    engine: AsyncEngine
    """The ledger."""
    audit: AuditTrail
    """Audit trail."""


if TYPE_CHECKING:
    from cloister_api.sessions.provider.sign_in import ProviderSignIn


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


def creator_of(
    base: Infrastructure,
    reader: ContainerReader,
    resolver: ReleaseResolver,
    claims: HostnameClaims,
    idempotency: IdempotentRequests,
    replacements: Replacements,
) -> ContainerCreator:
    """Build what creates containers."""
    return ContainerCreator(
        client=base.client,
        cache=base.cache,
        reader=reader,
        resolver=resolver,
        claims=claims,
        idempotency=idempotency,
        replacements=replacements,
        containers_domain=base.installation.containers_domain,
    )


def validation_of(
    base: Infrastructure,
    reader: ContainerReader,
    resolver: ReleaseResolver,
    claims: HostnameClaims,
    replacements: Replacements,
) -> Validation:
    """Build what judges names and releases."""
    return Validation(
        cache=base.cache,
        reader=reader,
        resolver=resolver,
        claims=claims,
        replacements=replacements,
        installation=base.installation,
    )


def updater_of(
    base: Infrastructure, reader: ContainerReader, claims: HostnameClaims, resolver: ReleaseResolver
) -> ContainerUpdater:
    """Build what changes containers."""
    return ContainerUpdater(
        client=base.client,
        cache=base.cache,
        reader=reader,
        resolver=resolver,
        claims=claims,
        containers_domain=base.installation.containers_domain,
        gitops_managers=base.settings.gitops_managers,
        webhooks=accepts_webhooks(base.settings),
    )


def accepts_webhooks(settings: ApiSettings) -> bool:
    """Return whether the installation accepts release webhooks."""
    return settings.webhooks.release_secret_file is not None


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
        credentials=PullCredentials(base.client, base.cache, settings.registry.private_hosts),
        installation=installation,
    )


DNS_WAIT_SECONDS = 10.0
"""Longest wait until the operator has queried DNS, in seconds."""


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


def related_services(
    base: Infrastructure,
    reader: ContainerReader,
    resolver: ReleaseResolver,
    updater_of: Callable[[ReleaseResolver], ContainerUpdater],
    idempotency: IdempotentRequests,
    records: RecordSettings,
) -> RelatedServices:
    """Build the services."""
    settings, installation, clock = base.settings, base.installation, base.clock
    client, cache = base.client, base.cache
    core = CoreSecrets(client, settings.gitops_managers)
    wait = settings.write_wait_seconds
    return RelatedServices(
        deployments=Deployments(
            client=client,
            cache=cache,
            resolver=resolver,
            updater_of=updater_of,
            records=records,
            gitops_managers=settings.gitops_managers,
            write_wait=wait,
        ),
        secrets=Secrets(
            client=client,
            cache=cache,
            reader=reader,
            core=core,
            idempotency=idempotency,
            default_limits=installation.default_limits,
            clock=clock,
            write_wait=wait,
        ),
        ssh_keys=SSHKeys(
            client=client,
            cache=cache,
            reader=reader,
            idempotency=idempotency,
            default_limits=installation.default_limits,
            write_wait=wait,
        ),
        domains=Domains(
            client=client,
            cache=cache,
            reader=reader,
            idempotency=idempotency,
            default_limits=installation.default_limits,
            clock=clock,
            write_wait=wait,
            containers_domain=installation.containers_domain,
            dns_wait=DNS_WAIT_SECONDS,
        ),
        registry_credentials=RegistryCredentials(
            client=client, cache=cache, core=core, clock=clock, write_wait=wait
        ),
    )


def admin_key_desk_of(
    base: Infrastructure, admin_keys: AdminKeyCache, material: KeySealer
) -> AdminKeyDesk:
    """Build the service of admin keys."""
    keys = AdminKeys(base.engine, material)
    return AdminKeyDesk(keys, admin_keys, base.clock, base.installation.default_limits)


def organization_reader_of(base: Infrastructure, admin_keys: AdminKeyCache) -> OrganizationReader:
    """Build what reads organizations."""
    return OrganizationReader(
        base.cache,
        admin_keys,
        base.clock,
        base.settings.gitops_managers,
        base.installation.default_limits,
    )


def members_of(base: Infrastructure, keys: AdminKeyDesk) -> MemberDesk:
    """Build the service of members."""
    return MemberDesk(
        base.client,
        base.cache,
        keys,
        gitops_managers=base.settings.gitops_managers,
        write_wait=base.settings.write_wait_seconds,
    )
