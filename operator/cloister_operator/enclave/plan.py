"""The input of the builders: an Enclave, its file, its Host, and a few settings.

`cloister_operator.reconcile.children` fills it; the builders read nothing else.
"""

from dataclasses import dataclass

from cloister_crds.config import ContainerConfig, ServiceConfig
from cloister_crds.kinds import Enclave, Host
from cloister_crds.kinds.enclave import ImageFacts
from cloister_crds.names import (
    CONTAINER_LABEL,
    ENCLAVE_LABEL,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    ORGANIZATION_LABEL,
    SHELLS_LABEL,
    config_map_name,
    distinct_label,
    service_name,
    snapshot_name,
)


@dataclass(frozen=True, slots=True)
class ApiIdentity:
    """Who the API is for enclaves. Where it is, `network.cluster_network.ApiEndpoint` says."""

    url: str
    """Base address, http or https."""
    authorities: str = ""
    """Certificate authorities that the API's certificate must chain to, PEM; empty means the public
    ones."""


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """The administrator's settings for every enclave."""

    shim_image: str
    """Image of the shim with digest."""
    guest_image: str
    """Image of the guest with digest."""
    pull_secrets: tuple[str, ...] = ()
    """Core Secrets in the namespace of each organization that both are pulled with."""
    service: str = "cloister"
    """Name of the service for enclaves that record none."""
    key_cache_seconds: float = 1.0
    """Seconds for which an API key that was valid is not checked again."""
    key_outage_seconds: float = 30.0
    """Seconds after its last successful check for which a key stays valid while the API is down."""
    api: ApiIdentity | None = None
    """The API; None if enclaves cannot reach it."""


@dataclass(frozen=True, slots=True)
class EnclavePlan:
    """One Enclave with all that its children are built from."""

    enclave: Enclave
    """The Enclave, as the API server has it (with uid)."""
    organization: str
    """Slug of the Organization."""
    host: Host
    """The Host that it runs on."""
    config: ServiceConfig
    """The parsed file."""
    file: bytes
    """The file's raw bytes."""

    @property
    def name(self) -> str:
        """Name of the Enclave, and of its Pod."""
        return self.enclave.metadata.name

    @property
    def config_map(self) -> str:
        """Name of the ConfigMap with the file."""
        return config_map_name(self.name)

    @property
    def snapshot(self) -> str:
        """Name of the core Secret with the values of the enclave's secrets."""
        return snapshot_name(self.name)

    @property
    def labels(self) -> dict[str, str]:
        """Labels of every child."""
        return {
            MANAGED_BY_LABEL: MANAGED_BY,
            ORGANIZATION_LABEL: distinct_label(self.organization),
            CONTAINER_LABEL: service_name(self.enclave.spec.container.name),
            ENCLAVE_LABEL: self.name,
            **({SHELLS_LABEL: ""} if self.has_ssh else {}),
        }

    def service(self, settings: BuildSettings) -> str:
        """Return the service's name as it was when the enclave was admitted."""
        return self.enclave.spec.service or settings.service

    @property
    def has_ssh(self) -> bool:
        """Whether some keys may log in by SSH: only to a debug enclave."""
        return self.enclave.spec.debug and bool(self.enclave.spec.ssh_keys)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Names of all secrets that containers of the file name, each once, in order."""
        named = (secret for container in self.config.containers for secret in container.secrets)
        return tuple(dict.fromkeys(named))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the containers of the file, in order."""
        return tuple(container.name for container in self.config.containers)

    def facts(self, container: ContainerConfig) -> ImageFacts:
        """Return what the registry reported about the image of a container of the file."""
        for facts in self.enclave.spec.images:
            if facts.container == container.name:
                return facts
        return ImageFacts(container=container.name, image=container.image)

    def metadata(self, name: str) -> dict[str, object]:
        """Return the metadata of a child: the Enclave owns it, and it is deleted with it."""
        return {
            "name": name,
            "namespace": self.enclave.metadata.namespace,
            "labels": self.labels,
            "ownerReferences": [self.enclave.owner_reference()],
        }
