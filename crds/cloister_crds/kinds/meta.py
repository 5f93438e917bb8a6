"""What all kinds share: metadata, conditions, and how a model finds its place in the API.

Unknown fields are dropped, as the API server prunes them; ``kubectl`` tells the server to refuse
them (field validation).
"""

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, InitErrorDetails
from typing_extensions import override

from cloister_crds.kinds.scalars import ObjectName, Text, Timestamp, Uuid, Whole
from cloister_crds.schema.markers import (
    VALIDATIONS,
    Cel,
    Column,
    ListType,
    describe_fields,
    matches,
)

__all__ = [
    "GROUP",
    "PAUSED_ANNOTATION",
    "REQUESTED_AT_ANNOTATION",
    "VERSION",
    "Condition",
    "ConditionStatus",
    "Conditions",
    "KindInfo",
    "Model",
    "ObjectMeta",
    "OwnerReference",
    "Record",
    "RecordStatus",
    "Resource",
    "Status",
]

GROUP = "cloister.dev"
"""API group of every kind."""
VERSION = "v1alpha1"
"""The one served and stored version."""
PAUSED_ANNOTATION = f"{GROUP}/paused"
"""Value ``true`` makes the operator ignore an object, if its kind can be paused."""
REQUESTED_AT_ANNOTATION = f"{GROUP}/requested-at"
"""On a Domain or Deployment: "check now"; status.lastHandledRequest acknowledges with the same
value."""


class Model(BaseModel):
    """Base of every part of a custom resource: camelCase on the wire, immutable in memory."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        defer_build=True,
        frozen=True,
        populate_by_name=True,
        use_enum_values=False,
        extra="ignore",
    )

    CEL: ClassVar[tuple[Cel, ...]] = ()
    """Rules over the whole object, checked by the API server and here."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_unset(cls, data: Any) -> Any:
        """Treat null as absent, as the API server does with fields that are not nullable."""
        if isinstance(data, dict) and None in data.values():
            return {key: value for key, value in data.items() if value is not None}
        return data

    @model_validator(mode="after")
    def _keep_the_rules(self) -> Self:
        """Check every rule of the class that is not about a change; report all that are broken."""
        broken = [rule for rule in self.CEL if rule.check is not None and not rule.check(self)]
        if broken:
            raise ValidationError.from_exception_data(
                type(self).__name__,
                [
                    InitErrorDetails(
                        type=rule.error(),
                        loc=tuple((rule.field_path or "").strip(".").split(".")),
                        input=None,
                    )
                    for rule in broken
                ],
            )
        return self

    @classmethod
    @override
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> dict[str, Any]:
        """Put descriptions and the rules of the class where the generator finds them."""
        result = handler.resolve_ref_schema(handler(core_schema))
        describe_fields(result, cls)
        if cls.CEL:
            result[VALIDATIONS] = [rule.validation() for rule in cls.CEL]
        return result

    def wire(self) -> dict[str, Any]:
        """Return the object as JSON data with wire names, unset (None) fields left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class OwnerReference(Model):
    """An object that this one is deleted with (Kubernetes, "Owners and Dependents")."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Model):
    """The part of Kubernetes' object metadata that Cloister reads."""

    name: ObjectName
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @classmethod
    @override
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> dict[str, Any]:
        """Leave metadata to the API server, which knows it without a schema."""
        return {"type": "object"}


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(Model):
    """One observation about an object (Kubernetes API conventions, "Typical status properties")."""

    type: Annotated[
        str,
        Field(min_length=1, max_length=316),
        matches(
            r"^([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
            "type is a CamelCase word, with a domain in front where it is not Cloister's",
        ),
    ]
    """type names the condition, such as ``Ready``."""
    status: ConditionStatus
    """status is True, False or Unknown."""
    observed_generation: Annotated[int, Whole(0, 9_007_199_254_740_991)] = 0
    """observedGeneration is the metadata.generation that the condition was seen at."""
    last_transition_time: Timestamp
    """lastTransitionTime is when status last changed, in UTC."""
    reason: Annotated[
        str,
        Field(min_length=1, max_length=1024),
        matches(
            r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            "reason is one CamelCase word for programs; sentences belong to message",
        ),
    ]
    """reason is a stable CamelCase word for programs; docs/reasons.md lists them."""
    message: Text = ""
    """message describes the state and what to do, for people."""


Conditions = Annotated[tuple[Condition, ...], Field(max_length=16), ListType("map", keys=("type",))]
"""List of conditions, one of each type."""


class Status(Model):
    """What every status begins with."""

    observed_generation: Annotated[int, Whole(-1, 9_007_199_254_740_991)] = -1
    """observedGeneration is the metadata.generation this status was computed for; -1 if there is
    none yet, so that tools such as Flux and ``kubectl wait`` never take a fresh object for a ready
    one."""
    conditions: Conditions = ()
    """conditions are the observations, one of each type; ``Ready`` is the summary."""


class RecordStatus(Status):
    """What the status of a kind begins with that is a record of the REST API."""

    CEL: ClassVar[tuple[Cel, ...]] = (
        Cel(
            rule="!has(oldSelf.id) || (has(self.id) && self.id == oldSelf.id)",
            message="id cannot be changed; delete the object and restore it again",
            field_path=".id",
        ),
    )

    id: Uuid | None = None
    """id is the metadata.uid that a restored object had when it was first created: its identifier
    in the REST API. Written once, by `cloister restore`; unset means metadata.uid."""


class KindInfo(Model):
    """Where a kind is in the API."""

    kind: str
    """Kind, such as ``Container``."""
    plural: str
    """Name in the path, such as ``containers``."""
    singular: str
    """Name of one, such as ``container``."""
    short_names: tuple[str, ...]
    """Short names for kubectl."""
    namespaced: bool
    """Whether objects live in a namespace."""
    description: str
    """First text of ``kubectl explain``."""

    @property
    def api_version(self) -> str:
        """``group/version`` as it is in manifests."""
        return f"{GROUP}/{VERSION}"

    @property
    def crd_name(self) -> str:
        """Name of the CustomResourceDefinition."""
        return f"{self.plural}.{GROUP}"


class Resource(Model):
    """Base of every kind: ``metadata``, ``spec`` and ``status`` are added by each."""

    INFO: ClassVar[KindInfo]
    """Where the kind is in the API."""
    COLUMNS: ClassVar[tuple[Column, ...]] = ()
    """Columns of ``kubectl get``."""

    metadata: ObjectMeta

    @classmethod
    def read(cls, body: dict[str, Any]) -> Self:
        """Build the model from an object of the API.

        Raises
        ------
        pydantic.ValidationError
            When the object breaks a rule of the kind; the server would have refused it.
        """
        return cls.model_validate(body)

    def manifest(self) -> dict[str, Any]:
        """Return the object as it is sent to the API, with apiVersion and kind, without status."""
        wire = self.wire()
        wire.pop("status", None)
        wire["metadata"] = self.metadata.model_dump(
            mode="json", by_alias=True, exclude_none=True, exclude_defaults=True
        )
        return {"apiVersion": self.INFO.api_version, "kind": self.INFO.kind, **wire}

    def owner_reference(self, *, block: bool = True) -> dict[str, Any]:
        """Return the reference that makes this object the controller of another."""
        return {
            "apiVersion": self.INFO.api_version,
            "kind": self.INFO.kind,
            "name": self.metadata.name,
            "uid": self.metadata.uid,
            "controller": True,
            "blockOwnerDeletion": block,
        }


class Record(Resource):
    """Base of the kinds that are records of the REST API."""

    if TYPE_CHECKING:
        # Each kind declares it after its spec, in the order of the schema.
        status: RecordStatus

    @property
    def identifier(self) -> str:
        """Identifier in the REST API: the uid, or the one that it had before a restore."""
        return self.status.id or self.metadata.uid
