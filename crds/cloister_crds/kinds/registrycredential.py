"""RegistryCredential: how an organization logs in to a private registry."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from cloister_crds.kinds.meta import KindInfo, Model, Record, RecordStatus
from cloister_crds.kinds.scalars import Flag, Timestamp, Word
from cloister_crds.kinds.secret import SecretRef
from cloister_crds.schema.markers import Cel, Column, immutable

__all__ = [
    "RegistryCredential",
    "RegistryCredentialSpec",
    "RegistryCredentialStatus",
    "RegistryName",
]


class RegistryName(StrEnum):
    """The registries that credentials can be kept for (spec 8.16)."""

    GHCR = "ghcr"
    GCR = "gcr"
    DOCKERHUB = "dockerhub"


class RegistryCredentialSpec(Model):
    """Desired state of a RegistryCredential."""

    registry: Annotated[RegistryName, immutable("registry", "make another RegistryCredential")]
    """registry is ghcr, gcr or dockerhub; metadata.name is the same word. Immutable."""
    secret_ref: SecretRef
    """secretRef is where the credentials are: a docker configuration (key .dockerconfigjson)."""


class RegistryCredentialStatus(RecordStatus):
    """Observed state of a RegistryCredential."""

    username: Word = ""
    """username that the credentials carry; empty until seen."""
    expired: Flag = False
    """expired is whether the registry refused the credentials when they were last used."""
    value_updated_at: Timestamp | None = None
    """valueUpdatedAt is when the core Secret was last written, in UTC; unset if not seen."""


class RegistryCredential(Record):
    """How the organization logs in to a private registry."""

    INFO: ClassVar[KindInfo] = KindInfo(
        kind="RegistryCredential",
        plural="registrycredentials",
        singular="registrycredential",
        short_names=(),
        namespaced=True,
        description="How the organization logs in to a private registry; the credentials are in a "
        "core Secret of the same namespace.",
    )
    CEL: ClassVar[tuple[Cel, ...]] = (
        Cel(
            rule="self.metadata.name == self.spec.registry",
            message="metadata.name is the registry (ghcr, gcr or dockerhub), so that there is one "
            "RegistryCredential for each; give it the value of spec.registry",
            field_path=".spec.registry",
            check=lambda credential: credential.metadata.name == credential.spec.registry.value,
        ),
    )
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("Registry", ".spec.registry"),
        Column("Expired", ".status.expired", "boolean"),
        Column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
        Column("Reason", ".status.conditions[?(@.type=='Ready')].reason"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    )

    spec: RegistryCredentialSpec
    status: RegistryCredentialStatus = Field(default_factory=RegistryCredentialStatus)
