"""The kinds of ``cloister.dev/v1alpha1``; all of them in order in `KINDS`."""

from cloister_crds.kinds.container import Container
from cloister_crds.kinds.deployment import Deployment
from cloister_crds.kinds.domain import Domain
from cloister_crds.kinds.enclave import Enclave
from cloister_crds.kinds.host import Host
from cloister_crds.kinds.hostnameclaim import HostnameClaim
from cloister_crds.kinds.meta import Resource
from cloister_crds.kinds.organization import Organization
from cloister_crds.kinds.registrycredential import RegistryCredential
from cloister_crds.kinds.secret import Secret
from cloister_crds.kinds.sshkey import SSHKey

__all__ = [
    "KINDS",
    "Container",
    "Deployment",
    "Domain",
    "Enclave",
    "Host",
    "HostnameClaim",
    "Organization",
    "RegistryCredential",
    "SSHKey",
    "Secret",
]

KINDS: tuple[type[Resource], ...] = (
    Organization,
    Host,
    Container,
    Enclave,
    Deployment,
    Secret,
    SSHKey,
    RegistryCredential,
    Domain,
    HostnameClaim,
)
"""Every kind."""
