"""Bodies of the key endpoints (spec 9, 25) and of the certificate endpoint (spec 26.1)."""

import json
import re
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError

from cloister_api.schemas.forms import RequestBody, whole

KEY_NAME_PATTERN = r"^[A-Za-z0-9._ -]+$"
"""Names of keys (spec 12.2); several keys may have one."""
KEY_PATTERN_WORDS = {
    KEY_NAME_PATTERN: "use letters, digits, hyphens, underscores, spaces and periods",
}
"""What to write instead of a name that does not fit."""
METADATA_BYTES = 5120
"""Largest metadata, in bytes of compact UTF-8 JSON (spec 25.2)."""
LARGEST = 2**53 - 1
"""Largest number that every JSON reader keeps exactly."""
RFC_3339 = re.compile(r"^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$")


def moment(given: Any) -> datetime:
    """Read a timestamp of RFC 3339.

    Raises
    ------
    PydanticCustomError
        When it is not one.
    """
    if isinstance(given, str) and RFC_3339.match(given):
        try:
            return datetime.fromisoformat(given.upper()).astimezone(UTC)
        except (ValueError, OverflowError):
            pass
    raise PydanticCustomError(
        "moment", "write a time with its zone as in RFC 3339, such as 2027-01-31T00:00:00Z"
    )


def compact(metadata: dict[str, Any]) -> str:
    """Return metadata as compact JSON text.

    Raises
    ------
    PydanticCustomError
        When it is not JSON or too large.
    """
    try:
        text = json.dumps(metadata, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text.encode())
    except (ValueError, RecursionError) as error:
        raise PydanticCustomError(
            "metadata", "holds what JSON cannot hold: NaN, Infinity, half a character, or too deep"
        ) from error
    if size > METADATA_BYTES:
        raise PydanticCustomError(
            "metadata",
            "is {size} bytes as compact JSON; at most {most} are kept",
            {"size": size, "most": METADATA_BYTES},
        )
    return text


def fitting(metadata: dict[str, Any]) -> dict[str, Any]:
    """Refuse metadata that cannot be kept."""
    compact(metadata)
    return metadata


KeyName = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=KEY_NAME_PATTERN)]

Cap = Annotated[int, Field(ge=0, le=LARGEST), BeforeValidator(whole)]


class CreateApiKeyRequest(RequestBody):
    """Body of POST /api/keys."""

    name: KeyName
    """Name that usage is reported under."""
    expires_at: Annotated[datetime, BeforeValidator(moment)] | None = None
    """When it ceases to be valid; None if never."""
    max_tokens: Cap | None = None
    """How many tokens it may use in all; None and 0 mean no cap."""
    metadata: Annotated[dict[str, Any], AfterValidator(fitting)] = Field(default_factory=dict)
    """Free-form; at most 5,120 bytes."""


class UpdateApiKeyRequest(RequestBody):
    """Body of POST /api/keys/update."""

    key: str
    """Full value of the key."""
    name: KeyName | None = None
    """New name; None means the present one."""
    max_tokens: Cap | None = None
    """New cap; 0 means no cap; None means the present one."""


class ChangeApiKeyRequest(RequestBody):
    """Body of PATCH /api/keys/by-id/:id."""

    name: KeyName | None = None
    """New name; None means the present one."""
    max_tokens: Cap | None = None
    """New cap; 0 means no cap; None means the present one."""
    disabled: bool | None = None
    """Whether it is switched off; None means unchanged."""


class KeyUsageRequest(RequestBody):
    """Body of POST /api/billing/usage/key."""

    key: str
    """Full value of the key."""


class SignCertificateRequest(RequestBody):
    """What an enclave sends."""

    csr: Annotated[str, StringConstraints(min_length=1, max_length=16_384)]
    """Certificate signing request, one PEM block."""
