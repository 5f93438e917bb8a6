"""Secret (csec): a named value of the organization; the value is in a core Secret."""

from typing import Annotated, ClassVar

from pydantic import Field

from cloister_crds.kinds.meta import KindInfo, Model, Record, RecordStatus
from cloister_crds.kinds.scalars import ObjectName, Repo, Timestamp, Word
from cloister_crds.schema.markers import (
    Cel,
    Column,
    ListType,
    immutable,
    immutable_optional,
    matches,
)

__all__ = ["SECRET_NAME_PATTERN", "Secret", "SecretRef", "SecretSpec", "SecretStatus"]

SECRET_NAME_PATTERN = r"^([A-Z][A-Z0-9]*(_[A-Z0-9]+)*|[a-z0-9]+(-[a-z0-9]+)*)$"  # noqa: S105 - a pattern of names
"""``UPPER_SNAKE_CASE`` or ``kebab-case`` (spec 12.5)."""


class SecretRef(Model):
    """Where the value lies: a key of a core Secret in the same namespace."""

    name: ObjectName
    """name of the core Secret."""
    key: Annotated[
        str,
        Field(min_length=1, max_length=253),
        matches(
            r"^[-._a-zA-Z0-9]+$",
            "key of a core Secret is of letters, digits, dots, hyphens and underscores",
        ),
    ] = "value"
    """key in the core Secret. Default value."""


class SecretSpec(Model):
    """Desired state of a Secret."""

    CEL: ClassVar[tuple[Cel, ...]] = (immutable_optional("repo", "make another Secret"),)

    name: Annotated[
        str,
        Field(min_length=1, max_length=253),
        matches(
            SECRET_NAME_PATTERN,
            "name is UPPER_SNAKE_CASE (an environment variable) or kebab-case (a file), such as "
            "OPENAI_API_KEY or tls-key",
        ),
        immutable("name", "make another Secret"),
    ]
    """name as configuration files write it. Immutable."""
    repo: Repo | None = None
    """repo makes it a repository secret, for the files of that repository; unset means an
    organization secret, for Containers that bind it. Immutable."""
    secret_ref: SecretRef
    """secretRef is where the value is."""


class SecretStatus(RecordStatus):
    """Observed state of a Secret."""

    used_by: Annotated[tuple[Word, ...], Field(max_length=1000), ListType("atomic")] = ()
    """usedBy are the names (metadata.name) of the Containers that use it."""
    value_updated_at: Timestamp | None = None
    """valueUpdatedAt is when the core Secret was last written, in UTC; unset if not seen."""


class Secret(Record):
    """A named value that configuration files may refer to."""

    INFO: ClassVar[KindInfo] = KindInfo(
        kind="Secret",
        plural="secrets",
        singular="secret",
        short_names=("csec",),
        namespaced=True,
        description="A named value that configuration files may refer to; the value itself is in "
        "a core Secret of the same namespace.",
    )
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("Secret", ".spec.name"),
        Column("Repo", ".spec.repo"),
        Column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
        Column("Reason", ".status.conditions[?(@.type=='Ready')].reason"),
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Used-By", ".status.usedBy", wide=True),
    )

    spec: SecretSpec
    status: SecretStatus = Field(default_factory=SecretStatus)
