"""The scalar types of the kinds: what a flag, a count, a word, a text and a time are on the wire.

They are as strict as the API server: no ``"true"`` for true, no 1 for true, no time without zone.
Every one is bounded, so that the server can bound the cost of its rules.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, GetCoreSchemaHandler, Strict
from pydantic_core import PydanticCustomError, core_schema

from cloister_crds.schema.markers import Cel, matches

__all__ = [
    "COMMIT_PATTERN",
    "HOSTNAME_PATTERN",
    "LABEL_PATTERN",
    "NAME_PATTERN",
    "OBJECT_NAME_PATTERN",
    "REPO_PATTERN",
    "TAG_PATTERN",
    "UUID_PATTERN",
    "Commit",
    "Count",
    "Flag",
    "Hostname",
    "ObjectName",
    "Repo",
    "Tag",
    "Text",
    "Timestamp",
    "Uuid",
    "Whole",
    "Word",
]

NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""Container names: lowercase letters, digits, hyphens, none at the ends (spec 12.4)."""
LABEL_PATTERN = NAME_PATTERN
"""A DNS label (RFC 1123); its length is bounded separately."""
OBJECT_NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
"""Name of an object (Kubernetes, "DNS subdomain names")."""
REPO_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*/[A-Za-z0-9_][A-Za-z0-9_.-]*$"
"""Repositories: ``owner/name``."""
COMMIT_PATTERN = r"^[0-9a-f]{40}$"
"""A git commit."""
TAG_PATTERN = r"^[^\x00-\x20\x7f~^:?*\[\\-][^\x00-\x20\x7f~^:?*\[\\]*$"
"""A git tag: no space, control character or one that git gives a meaning, no hyphen in front (git,
"git-check-ref-format")."""
HOSTNAME_PATTERN = r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.)+[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
"""A lowercase DNS name with at least two labels (RFC 1123)."""
UUID_PATTERN = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
"""A UUID in the form of metadata.uid (RFC 9562, "UUID Format")."""
TIME_PATTERN = (
    r"^[12][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    r"T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,6})?Z$"
)
"""A time in UTC (RFC 3339); both sides read exactly these."""


def _only_text(value: Any) -> Any:
    """Refuse numbers, which pydantic would take for seconds since 1970."""
    if isinstance(value, str):
        check = _TIME.check
        if check is None or not check(value):
            raise _TIME.error()
    elif not isinstance(value, datetime):
        raise _TIME.error()
    return value


def _in_utc(value: datetime) -> datetime:
    """Write all times in UTC."""
    if value.tzinfo is None:
        raise PydanticCustomError("rule", "a time needs its zone; give it one, best UTC")
    return value.astimezone(UTC)


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number between two bounds; 5.0 is 5, as for the API server: JSON has one number."""

    low: int
    """Smallest value."""
    high: int
    """Largest value."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Refuse words and booleans, take floats without a fraction."""
        number = core_schema.int_schema(strict=True, ge=self.low, le=self.high)
        return core_schema.no_info_before_validator_function(_whole, number)


def _whole(value: Any) -> Any:
    """Treat a float without a fraction as the integer that it is."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


_TIME = matches(TIME_PATTERN, "a time is written in UTC, such as 2026-01-31T12:00:00Z")
_IS_TIME = Cel(
    rule="self >= timestamp('1000-01-01T00:00:00Z')",
    message=_TIME.message,
    check=lambda time: time.year >= 1000,  # noqa: PLR2004 - as in the rule
)
"""Checked in addition to the format: the server takes a list for a string with the format
date-time, and a rule over it fails as it should."""

Flag = Annotated[bool, Strict()]
"""true or false, never a word or number for it."""
Count = Annotated[int, Whole(0, 2_147_483_647)]
"""How many there are of something."""
Word = Annotated[str, Field(max_length=253)]
"""A name or another short text."""
Text = Annotated[str, Field(max_length=32768)]
"""Sentences for people."""
Timestamp = Annotated[
    datetime,
    AfterValidator(_in_utc),
    BeforeValidator(_only_text),
    _IS_TIME,
    Field(json_schema_extra={"pattern": TIME_PATTERN, "maxLength": 32}),
]
"""A point in time, in UTC, written as RFC 3339 says with ``Z``."""

ObjectName = Annotated[
    str,
    Field(min_length=1, max_length=253),
    matches(
        OBJECT_NAME_PATTERN,
        "the name of an object is of lowercase letters, digits, hyphens and dots, and begins and "
        "ends with a letter or digit",
    ),
]
"""metadata.name of another object."""
Repo = Annotated[
    str,
    Field(min_length=3, max_length=200),
    matches(
        REPO_PATTERN,
        "repo is written owner/name, such as acme/web: letters, digits, dots, hyphens and "
        "underscores, without https:// and without .git",
    ),
]
"""A repository, ``owner/name``."""
Tag = Annotated[
    str,
    Field(min_length=1, max_length=255),
    matches(
        TAG_PATTERN,
        r"tag is the name of a git tag, such as v1.0.0: no spaces, none of ~ ^ : ? * [ \, and no "
        "hyphen in front",
    ),
]
"""A git tag."""
Commit = Annotated[
    str,
    Field(max_length=40),
    matches(COMMIT_PATTERN, "commit is written in full: 40 lowercase hexadecimal digits"),
]
"""A git commit."""
Uuid = Annotated[
    str,
    Field(max_length=36),
    matches(UUID_PATTERN, "id is a UUID in lowercase, as metadata.uid is"),
]
"""A UUID."""
Hostname = Annotated[
    str,
    Field(min_length=3, max_length=253),
    matches(
        HOSTNAME_PATTERN,
        "a host name is lowercase and has at least two parts, such as app.example.com; leave out "
        "protocol, path, port and wildcard",
    ),
]
"""A lowercase DNS name."""
