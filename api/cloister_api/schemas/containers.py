"""Bodies of the container endpoints (spec 21)."""

from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)
from pydantic_core import PydanticCustomError

from cloister_api.schemas.forms import RequestBody, whole
from cloister_crds.kinds.container import HOSTNAME_PATTERN, NAME_PATTERN, REPO_PATTERN

CONTRACT_TO_API = {
    "host": "host_name",
    "disable_confidential": "disable_cc_mode",
    "github_connected": "github_app_connected",
    "replaces": "replace_container_id",
}
"""Fields of a Container's spec that the API names differently; all others have the same name."""


def api_name(field: str) -> str:
    """Return the name in the API of a field of a Container's spec."""
    return CONTRACT_TO_API.get(field, field)


VARIABLE_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"


def without_nul(text: str) -> str:
    """Refuse the one character that no environment can hold.

    Raises
    ------
    PydanticCustomError
        When there is one.
    """
    if "\x00" in text:
        raise PydanticCustomError("nul", "must not contain the character NUL")
    return text


def each_once(names: list[str]) -> list[str]:
    """Refuse a list that names something twice.

    Raises
    ------
    PydanticCustomError
        When it does.
    """
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise PydanticCustomError("twice", "{names} is listed twice", {"names": ", ".join(twice)})
    return names


SECRET_PATTERN = r"^[A-Za-z0-9_-]+$"  # noqa: S105 - a pattern of names
"""Names of secrets, in either spelling."""
HOST_PATTERN = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$"
"""Names of Hosts."""
HOST_OR_DEFAULT_PATTERN = r"^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$"
"""Names of Hosts, and empty means the default one."""
NUL_PATTERN = r"^[^\u0000]*$"
"""Texts without the character NUL."""
_DASHED = "use lowercase letters, digits and hyphens, no hyphen at the ends"
PATTERN_WORDS = {
    NUL_PATTERN: "leave the character NUL out",
    NAME_PATTERN: _DASHED,
    REPO_PATTERN: "write owner/name, such as acme/web, without https:// and without .git",
    VARIABLE_NAME: "use letters, digits and underscores, no digit in front",
    SECRET_PATTERN: "write UPPER_SNAKE_CASE or kebab-case",
    HOST_PATTERN: "use lowercase letters, digits, hyphens and dots, none of them at the ends",
    HOST_OR_DEFAULT_PATTERN: "use lowercase letters, digits, hyphens and dots, none of them at the "
    "ends, or leave it empty for the default host",
    HOSTNAME_PATTERN: "write a lowercase host name, such as api.example.com",
}
"""What to write instead of a text that does not fit a pattern."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=NAME_PATTERN)]
Repo = Annotated[str, StringConstraints(min_length=3, max_length=200, pattern=REPO_PATTERN)]
Tag = Annotated[
    str,
    StringConstraints(min_length=1, max_length=255),
    AfterValidator(without_nul),
    Field(json_schema_extra={"pattern": NUL_PATTERN}),
]
Variables = Annotated[
    dict[
        Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=VARIABLE_NAME)],
        Annotated[str, StringConstraints(max_length=32_768), AfterValidator(without_nul)],
    ],
    Field(max_length=256),
]
SecretNames = Annotated[
    list[Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=SECRET_PATTERN)]],
    Field(max_length=256, json_schema_extra={"uniqueItems": True}),
    AfterValidator(each_once),
]
KeyNames = Annotated[
    list[Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=NAME_PATTERN)]],
    Field(max_length=64, json_schema_extra={"uniqueItems": True}),
    AfterValidator(each_once),
]
HostName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=253, pattern=HOST_PATTERN),
]
Domain = Annotated[str, StringConstraints(min_length=3, max_length=253, pattern=HOSTNAME_PATTERN)]
Id = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Gpus = Annotated[int, Field(ge=0, le=64), BeforeValidator(whole)]


class ContainerRequest(RequestBody):
    """Base of the bodies that become a Container's spec: fields have the names of the spec."""

    model_config = ConfigDict(alias_generator=api_name)


class CreateContainerRequest(ContainerRequest):
    """Body of POST /api/containers."""

    name: Name
    """Name in the host name."""
    repo: Repo
    """``owner/name``."""
    tag: Tag
    """Tag with a published release."""
    variables: Variables = Field(default_factory=dict)
    """Values of bare names in the file's env."""
    secrets: SecretNames = Field(default_factory=list)
    """Organization secrets that the file may use."""
    ssh_keys: KeyNames = Field(default_factory=list)
    """SSH keys that may log in; debug only."""
    debug: bool = False
    """Whether it is a debug container."""
    staging: bool | None = None
    """Whether updates wait for accept; None means the deployment's default."""
    custom_domain: Domain | None = None
    """Verified domain; None means only the generated one."""
    host: HostName | None = None
    """Host to run on; None means the default one."""
    gpus: Gpus | None = None
    """GPU count; None means the file's."""
    replaces: Id | None = None
    """Identifier of the container that this one replaces; None if there is none."""
    disable_confidential: bool = False
    """Whether it runs without the TEE of the Host."""


class ContainerChanges(ContainerRequest):
    """What a relaunch may change, and a validate may ask about; what is left out stays as it is."""

    variables: Variables | None = None
    """The whole new set; None means the present one."""
    secrets: SecretNames | None = None
    """The whole new list; None means the present one."""
    ssh_keys: KeyNames | None = None
    """The whole new list; None means the present one, and none without debug."""
    debug: bool | None = None
    """Debug or not; None means unchanged."""
    staging: bool | None = None
    """Staging or not; None means unchanged."""
    gpus: Gpus | None = None
    """New GPU count; None means unchanged."""
    custom_domain: Annotated[str, StringConstraints(max_length=253)] | None = None
    """New domain; empty means back to the generated one; None means unchanged."""
    host: (
        Annotated[str, StringConstraints(max_length=253, pattern=HOST_OR_DEFAULT_PATTERN)] | None
    ) = None
    """New host; empty means back to the default one; None means unchanged."""
    disable_confidential: bool | None = None
    """Without the TEE of the Host or with it; None means unchanged, and with it without debug."""


class RelaunchRequest(ContainerChanges):
    """Body of POST …/relaunch and …/start: only what changes."""

    tag: Tag | None = None
    """New tag; None means the present one."""


class AutoUpdateRequest(RequestBody):
    """Body of POST …/auto-update."""

    auto_update: bool
    """Whether later releases are followed."""


class GithubConnectionRequest(RequestBody):
    """Body of POST …/github-connection: any one of the three names."""

    enabled: bool | None = None
    connected: bool | None = None
    github_app_connected: bool | None = None

    @model_validator(mode="after")
    def one_of_them(self) -> Self:
        """Refuse none and several.

        Raises
        ------
        PydanticCustomError
            When there is not exactly one.
        """
        if len(self.model_fields_set) != 1:
            raise PydanticCustomError(
                "one", "send exactly one of enabled, connected, github_app_connected"
            )
        return self

    @property
    def wanted(self) -> bool:
        """Whether to connect the container."""
        return any((self.enabled, self.connected, self.github_app_connected))


class ValidateReleaseRequest(ContainerChanges):
    """Body of POST /api/containers/validate: a create, or with `container_id` a relaunch."""

    repo: Repo
    """``owner/name``."""
    tag: Tag
    """Tag with a published release."""
    instance_name: Annotated[str, StringConstraints(max_length=253)] | None = None
    """Name of the container that is meant; None if its name is not judged."""
    container_id: Id | None = None
    """Container to relaunch; None if there is none."""
    replace_container_id: Id | None = None
    """Container to replace; None if there is none."""


class ValidateNameRequest(RequestBody):
    """Body of POST /api/containers/validate-name."""

    name: Annotated[str, StringConstraints(max_length=1024)]
    """The name; a bad one gets a verdict, not an error."""
    debug: bool = False
    """Whether it is for a debug container."""
    custom_domain: Annotated[str, StringConstraints(max_length=1024)] | None = None
    """Custom domain that is meant; None if there is none."""
    container_id: Id | None = None
    """Container that keeps its name in a relaunch; None if there is none."""
