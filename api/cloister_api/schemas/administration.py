"""Bodies of what only who is signed in may do: members and admin keys."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from cloister_api.schemas.request import RequestBody, whole
from cloister_crds.kinds.organization import Role

__all__ = ["CreateAdminKeyRequest", "PutMemberRequest"]


Days = Annotated[int, Field(ge=1, le=3650), BeforeValidator(whole)]


class PutMemberRequest(RequestBody):
    """What somebody is to be in the organization."""

    role: str = Field(json_schema_extra={"enum": [*Role]})
    """What the person may do: administrators everything, members read."""


class CreateAdminKeyRequest(RequestBody):
    """A new admin key of who is signed in."""

    name: str = Field(min_length=1, max_length=128)
    """Name for people, which says what the key is for."""
    days: Days | None = None
    """Days until it expires; left out = it does not."""
