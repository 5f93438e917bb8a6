"""Parts that bodies share: the details of an error, the base of request bodies."""

from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator

__all__ = ["Body", "Detail"]

LEGACY = frozenset({"group_name", "group_order", "display_order"})
"""Fields that old clients send and nothing reads (client contract, general rules)."""


@dataclass(frozen=True, slots=True)
class Detail:
    """One thing that is wrong with a request."""

    field: str
    """Field of the body or of the configuration file; empty for the whole."""
    code: str
    """CamelCase word for programs."""
    message: str
    """Sentence for people."""


class Body(BaseModel):
    """Base of request bodies: unknown fields are refused, null means left out."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    IGNORED: ClassVar[frozenset[str]] = LEGACY
    """Fields that are accepted and ignored."""

    @model_validator(mode="before")
    @classmethod
    def leave_out(cls, data: Any) -> Any:
        """Drop nulls and legacy names before the fields are looked at."""
        if not isinstance(data, dict):
            return data
        return {
            key: value
            for key, value in data.items()
            if value is not None and key not in cls.IGNORED
        }
