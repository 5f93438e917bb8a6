"""Builds the services beside containers."""

from collections.abc import Callable
from dataclasses import dataclass

from cloister_api.assembly.infrastructure import Infrastructure
from cloister_api.records.container import RecordSettings
from cloister_api.services.containers.reader import ContainerReader
from cloister_api.services.containers.resolution import ReleaseResolver
from cloister_api.services.containers.updater import ContainerUpdater
from cloister_api.services.core_secrets import CoreSecrets
from cloister_api.services.idempotency import IdempotentRequests
from cloister_api.services.resources.deployments import Deployments
from cloister_api.services.resources.domains import Domains
from cloister_api.services.resources.registry_credentials import RegistryCredentials
from cloister_api.services.resources.secrets import Secrets
from cloister_api.services.resources.ssh_keys import SSHKeys

__all__ = ["RelatedServices", "related_services"]

DNS_WAIT_SECONDS = 10.0
"""Longest wait until the operator has queried DNS, in seconds."""


@dataclass(frozen=True, slots=True)
class RelatedServices:
    """What an organization has beside containers (spec 7, 8)."""

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
