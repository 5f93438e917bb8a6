"""Bodies of the endpoints beside containers (spec 23, 24)."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema
from pydantic_core import PydanticCustomError

from cloister_api.schemas.containers import Domain, Id, Repo, Tag
from cloister_api.schemas.request import RequestBody
from cloister_crds.kinds.secret import SECRET_NAME_PATTERN
from cloister_crds.kinds.sshkey import KEBAB_PATTERN

__all__ = [
    "ChangeDeploymentRequest",
    "CreateDomainRequest",
    "CreateSecretRequest",
    "CreateSshKeyRequest",
    "PutRegistryCredentialsRequest",
    "UpdateDeploymentRequest",
    "UpdateSecretRequest",
]

MOST_VALUE = 512 * 1024
"""Longest value of a secret, in characters: it has to fit into a core Secret of 1 MiB."""

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
    """Makes it a secret of this repository; None = of the organization."""


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
    """Whether the updates wait; None = the deployment's default."""
    instance_ids: Annotated[list[Id], Field(max_length=1000)] | None = None
    """Containers to update; None = all of the deployment."""
    promote_release: bool = False
    """Refused: no source of repositories is written to."""
