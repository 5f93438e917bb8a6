"""Builds the services of containers."""

from cloister_api.assembly.infrastructure import Infrastructure
from cloister_api.services.claims import HostnameClaims
from cloister_api.services.containers.creator import ContainerCreator
from cloister_api.services.containers.lookups import Lookups
from cloister_api.services.containers.reader import ContainerReader
from cloister_api.services.containers.replacements import Replacements
from cloister_api.services.containers.resolution import PullCredentials, ReleaseResolver
from cloister_api.services.containers.updater import ContainerUpdater
from cloister_api.services.containers.validation import Validation
from cloister_api.services.idempotency import IdempotentRequests
from cloister_api.settings import ApiSettings
from cloister_clients.lanes.outside import OutsideLanes
from cloister_clients.registry import Platform, RegistryClient
from cloister_clients.sources import provider_from

__all__ = ["accepts_webhooks", "creator_of", "resolver_of", "updater_of", "validation_of"]


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
