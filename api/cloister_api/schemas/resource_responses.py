"""Responses about deployments, secrets, SSH keys, domains and registries."""

from typing import Literal

from cloister_api.schemas.container_responses import ContainerResponse
from cloister_api.schemas.response import (
    ContainerUser,
    Count,
    Omittable,
    ResponseBody,
    Timestamp,
    Uuid,
)

__all__ = [
    "DeploymentResponse",
    "DeploymentResult",
    "DeploymentResultsResponse",
    "DomainResponse",
    "RegistryCredentialsResponse",
    "RegistryStatusResponse",
    "SecretResponse",
    "SshKeyResponse",
]


class DeploymentResponse(ResponseBody):
    """The containers of one repository."""

    id: Uuid
    """Identifier."""
    repo: str
    """Repository, `owner/name`."""
    default_staging: bool
    """Whether updates wait where a container says nothing."""
    created_at: Timestamp
    """When it was created."""
    updated_at: Timestamp
    """When it last changed."""
    instance_count: Count
    """Containers."""
    ready_count: Count
    """Those that serve."""
    failed_count: Count
    """Those that failed."""
    stopped_count: Count
    """Those that are stopped or stopping."""
    deploying_count: Count
    """Those that are pending, deploying or started."""


class DeploymentResult(ResponseBody):
    """Result of the update of one container."""

    container_id: Uuid
    """The container."""
    name: str
    """Its name."""
    status: Literal["updating", "skipped", "failed"]
    """Result of it."""
    error: Omittable[str] = None
    """Why it was skipped or failed."""
    container: Omittable[ContainerResponse] = None
    """Its record, when it is updating."""


class DeploymentResultsResponse(ResponseBody):
    """Result of an update of a deployment."""

    results: list[DeploymentResult]
    """One entry for each container."""


class SecretResponse(ResponseBody):
    """A secret; its value is never in a response."""

    id: Uuid
    """Identifier."""
    name: str
    """Name as configuration files write it."""
    created_at: Timestamp
    """When it was created."""
    updated_at: Timestamp
    """When its value was last written."""
    used_by: list[str]
    """Names of the containers that use it, one for each."""
    used_by_containers: list[ContainerUser]
    """The same containers in the same order, with their identifiers."""
    repo: Omittable[str] = None
    """Repository, for a secret of one."""


class SshKeyResponse(ResponseBody):
    """A public key for debug containers."""

    id: Uuid
    """Identifier."""
    name: str
    """Name."""
    key_type: str
    """Type, such as `ssh-ed25519`."""
    created_at: Timestamp
    """When it was created."""
    used_by: list[str]
    """Names of the containers that use it, one for each."""
    used_by_containers: list[ContainerUser]
    """The same containers in the same order, with their identifiers."""


class DomainResponse(ResponseBody):
    """A custom domain and the DNS records that it needs; empty until the operator has seen it."""

    id: Uuid
    """Identifier."""
    domain: str
    """Host name."""
    verification_nonce: str
    """Nonce of the organization in the TXT record."""
    cname_hash: str
    """First label of the CNAME's target."""
    verified: bool
    """Whether both records were found."""
    verified_at: Timestamp | None
    """When they were; null = never."""
    created_at: Timestamp
    """When it was added."""
    used_by: list[str]
    """Names of the containers that use it, one for each."""
    used_by_containers: list[ContainerUser]
    """The same containers in the same order, with their identifiers."""
    txt_record_host: str
    """Host of the TXT record."""
    txt_record_value: str
    """Value of the TXT record, exactly as it must be."""
    cname_target: str
    """Target of the CNAME record."""
    cname_configured: bool | None
    """Whether the CNAME record was right at the last check; null = not checked yet."""
    checked_at: Timestamp | None
    """When DNS was last checked; null = not yet."""
    lost_at: Timestamp | None
    """When it lost its verification; null = it did not, or is verified again."""
    message: str
    """What the last check found and what to do; empty until the operator has seen the domain."""


class RegistryStatusResponse(ResponseBody):
    """Whether there are credentials for a registry."""

    has_credentials: bool
    """Whether there are."""
    updated_at: Omittable[Timestamp] = None
    """When they were last written."""
    expired: bool
    """Whether the registry refuses them."""
    username: Omittable[str] = None
    """User name."""


class RegistryCredentialsResponse(ResponseBody):
    """The status of every registry."""

    ghcr: RegistryStatusResponse
    """GitHub's."""
    gcr: RegistryStatusResponse
    """Google's."""
    dockerhub: RegistryStatusResponse
    """Docker Hub."""
