"""The services beside containers, put together."""

from dataclasses import dataclass

from cloister_api.cache import Views
from cloister_api.services.container_reader import Reading
from cloister_api.services.container_updater import Changing
from cloister_api.services.core_secrets import CoreSecrets
from cloister_api.services.deployments import Deployments
from cloister_api.services.domains import Domains
from cloister_api.services.idempotency import Repetitions
from cloister_api.services.registry_credentials import RegistryCredentials
from cloister_api.services.resolution import Resolution
from cloister_api.services.secrets import Secrets
from cloister_api.services.ssh_keys import SSHKeys
from cloister_api.settings import ApiSettings
from cloister_clients.clock import Clock
from cloister_clients.kube import KubeClient

__all__ = ["Related", "related"]

LOOK_SECONDS = 10.0
"""Longest wait for the operator's look at DNS, in seconds."""


@dataclass(frozen=True, slots=True)
class Related:
    """What an organization has beside containers (spec, "Related resources", "Deployments")."""

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


def related(
    settings: ApiSettings,
    clock: Clock,
    client: KubeClient,
    views: Views,
    reading: Reading,
    resolution: Resolution,
    changing: Changing,
    repetitions: Repetitions,
) -> Related:
    """Put the services together.

    Parameters
    ----------
    settings
        The administrator's settings.
    clock
        Tells the time.
    client
        Writes to the cluster.
    views
        Copies of custom resources.
    reading
        Reads of containers.
    resolution
        Releases and images.
    changing
        Changes containers.
    repetitions
        Tells creates that are sent again.
    """
    core = CoreSecrets(client, settings.gitops_managers)
    wait = settings.write_wait_seconds
    return Related(
        deployments=Deployments(
            client=client,
            views=views,
            resolution=resolution,
            changing=changing,
            containers_domain=settings.containers_domain,
            gitops_managers=settings.gitops_managers,
            write_wait=wait,
        ),
        secrets=Secrets(
            client=client,
            views=views,
            reading=reading,
            core=core,
            repetitions=repetitions,
            clock=clock,
            write_wait=wait,
        ),
        ssh_keys=SSHKeys(
            client=client,
            views=views,
            reading=reading,
            repetitions=repetitions,
            write_wait=wait,
        ),
        domains=Domains(
            client=client,
            views=views,
            reading=reading,
            repetitions=repetitions,
            clock=clock,
            write_wait=wait,
            look_wait=LOOK_SECONDS,
        ),
        registry_credentials=RegistryCredentials(
            client=client, views=views, core=core, clock=clock, write_wait=wait
        ),
    )
