"""Bodies and responses of deployments, secrets, SSH keys, domains and registries (spec 23, 24)."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema
from pydantic_core import PydanticCustomError

from cloister_api.schemas.container_responses import ContainerResponse
from cloister_api.schemas.containers import Domain, Id, Repo, Tag
from cloister_api.schemas.forms import (
    ContainerUser,
    Count,
    Omittable,
    RequestBody,
    ResponseBody,
    Timestamp,
    Uuid,
)
from cloister_crds.kinds.secret import SECRET_NAME_PATTERN
from cloister_crds.kinds.sshkey import KEBAB_PATTERN

MOST_VALUE = 512 * 1024
"""Longest value of a secret, in characters: it must fit into a core Secret of 1 MiB."""

Value = Annotated[str, StringConstraints(min_length=1, max_length=MOST_VALUE)]


class CreateSecretRequest(RequestBody):
    """Body of POST /api/secrets."""

    name: Annotated[
        str, StringConstraints(min_length=1, max_length=253, pattern=SECRET_NAME_PATTERN)
    ]
    """Name as configuration files write it."""
    value: Value = Field(repr=False)
    """The value."""
    repo: Repo | None = None
    """Makes it a secret of this repository; None makes it one of the organization."""


class UpdateSecretRequest(RequestBody):
    """Body of PUT /api/secrets/:name."""

    value: Value = Field(repr=False)
    """The new value."""


class CreateSshKeyRequest(RequestBody):
    """Body of POST /api/ssh-keys."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=KEBAB_PATTERN)]
    """Name in kebab-case."""
    public_key: Annotated[str, StringConstraints(min_length=1, max_length=16_384)]
    """One line of an OpenSSH public key file."""


class CreateDomainRequest(RequestBody):
    """Body of POST /api/domains."""

    domain: Domain
    """Host name, in lower case, without protocol, path, wildcard or port."""


def text_or_object(given: Any) -> Any:
    """Refuse what is neither, as one problem of the field.

    Raises
    ------
    PydanticCustomError
        When it is something else.
    """
    if not isinstance(given, str | dict):
        raise PydanticCustomError("key", "must be the JSON of a service account, text or object")
    return given


AccountKey = Annotated[
    Any,
    BeforeValidator(text_or_object),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}]}),
]


class PutRegistryCredentialsRequest(RequestBody):
    """Body of PUT /api/registry-credentials/:registry."""

    username: str | None = None
    """User name, for ghcr and dockerhub."""
    token: str | None = Field(default=None, repr=False)
    """Token, for ghcr and dockerhub."""
    key: AccountKey | None = Field(default=None, repr=False)
    """Key of a service account as JSON, text or object, for gcr."""


class ChangeDeploymentRequest(RequestBody):
    """Body of PATCH /api/deployments/:id."""

    default_staging: bool
    """Whether updates wait where a container says nothing."""


class UpdateDeploymentRequest(RequestBody):
    """Body of POST /api/deployments/:id/update."""

    tag: Tag
    """Tag to deploy."""
    staging: bool | None = None
    """Whether the updates wait; None means the deployment's default."""
    instance_ids: Annotated[list[Id], Field(max_length=1000)] | None = None
    """Containers to update; None means all of the deployment."""
    promote_release: bool = False
    """Refused: no source of repositories is written to."""


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
    """When they were; null if never."""
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
    """Whether the CNAME record was right at the last check; null if not checked yet."""
    checked_at: Timestamp | None
    """When DNS was last checked; null if not yet."""
    lost_at: Timestamp | None
    """When it lost its verification; null if it did not, or is verified again."""
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
