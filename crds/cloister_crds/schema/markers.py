"""What a model says to the generator beyond its types: CEL rules, list types, columns.

Markers stand in ``Annotated[...]`` metadata or, for rules over a whole object, in a model's class
variable ``CEL``. pydantic ignores them; the same rule stands beside as a validator where it is not
about a change (``oldSelf``), so that both sides accept one set.
"""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Cel", "Column", "ListType", "immutable"]


@dataclass(frozen=True, slots=True)
class Cel:
    """A rule of ``x-kubernetes-validations`` (Kubernetes, "Validation rules")."""

    rule: str
    """CEL over ``self`` and, for rules about a change, ``oldSelf``."""
    message: str
    """Sentence for the user: what is wrong and what to do."""
    field_path: str | None = None
    """Path of the field to blame, such as ``.customDomain``; None = where the rule stands."""
    reason: Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired"] | None = None
    """Machine-readable reason; None = FieldValueInvalid."""
    optional_old_self: bool = False
    """Whether the rule is also asked at creation, with ``oldSelf`` an optional value."""


@dataclass(frozen=True, slots=True)
class ListType:
    """How server-side apply and validation see a list (``x-kubernetes-list-type``)."""

    kind: Literal["set", "map", "atomic"]
    """``set``: no value twice; ``map``: no two items with the same keys; ``atomic``: one value."""
    keys: tuple[str, ...] = ()
    """Wire names of the key fields of a ``map``."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of ``kubectl get`` (``additionalPrinterColumns``)."""

    name: str
    """Heading."""
    path: str
    """JSON path from the object, such as ``.status.phase``."""
    type: Literal["string", "integer", "boolean", "date"] = "string"
    """How kubectl prints it."""
    description: str = ""
    """Text of ``kubectl explain``-like tools."""
    wide: bool = False
    """Whether only ``-o wide`` shows it."""


def immutable(what: str, remedy: str) -> Cel:
    """Say that a field never changes.

    Parameters
    ----------
    what
        Wire name of the field.
    remedy
        What to do instead, as an imperative sentence without full stop.
    """
    return Cel(rule="self == oldSelf", message=f"{what} cannot be changed; {remedy}")
