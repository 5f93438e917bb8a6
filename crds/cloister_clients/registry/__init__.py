"""OCI registries: whether an image exists, for which platform, and what it starts.

The rest of Cloister uses the names below.
"""

from cloister_clients.registry.client import LINUX_AMD64, RegistryClient, ResolvedImage
from cloister_clients.registry.credentials import (
    Credentials,
    PrivateRegistry,
    credentials_for,
    credentials_from,
    credentials_in,
    docker_config,
    registry_of,
)
from cloister_clients.registry.errors import (
    CredentialsInvalid,
    ImageNotFound,
    ManifestInvalid,
    PlatformMissing,
    ReferenceInvalid,
    RegistryError,
    RegistryRateLimited,
    RegistryRefused,
    RegistryUnauthorized,
    RegistryUnavailable,
)
from cloister_clients.registry.manifest import Platform
from cloister_clients.registry.reference import ImageReference, parse_reference
from cloister_clients.registry.settings import RegistrySettings

__all__ = [
    "LINUX_AMD64",
    "Credentials",
    "CredentialsInvalid",
    "ImageNotFound",
    "ImageReference",
    "ManifestInvalid",
    "Platform",
    "PlatformMissing",
    "PrivateRegistry",
    "ReferenceInvalid",
    "RegistryClient",
    "RegistryError",
    "RegistryRateLimited",
    "RegistryRefused",
    "RegistrySettings",
    "RegistryUnauthorized",
    "RegistryUnavailable",
    "ResolvedImage",
    "credentials_for",
    "credentials_from",
    "credentials_in",
    "docker_config",
    "parse_reference",
    "registry_of",
]
