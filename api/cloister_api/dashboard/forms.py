"""Forms as browsers send them without a script: application/x-www-form-urlencoded."""

import asyncio
import uuid
from dataclasses import dataclass
from typing import Self
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

from cloister_api.errors import ApiError, bad_request

__all__ = ["Form", "read_form"]

MAX_FORM = 64 * 1024
"""Largest body of a form, in bytes."""
MAX_FIELDS = 200
MEDIA_TYPE = "application/x-www-form-urlencoded"
TOO_LARGE = ApiError(413, "PAYLOAD_TOO_LARGE", f"a form has at most {MAX_FORM} bytes")
LATE = ApiError(408, "REQUEST_TIMEOUT", "the form did not arrive in time; send it again")


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a form."""

    fields: dict[str, str]
    """Values by name, as they were sent."""

    @classmethod
    def fresh(cls, **suggested: str) -> Self:
        """Return a form that nobody has sent yet, with the key that makes it count once.

        Parameters
        ----------
        **suggested
            Values that its fields have at first.
        """
        return cls({**suggested, "retry": str(uuid.uuid4())})

    @property
    def retry(self) -> str | None:
        """Idempotency key of the form; None = it has none."""
        return self.get("retry") or None

    def get(self, name: str) -> str:
        """Return the value of a field without surrounding blanks; empty = it has none."""
        return self.fields.get(name, "").strip()

    def whole(self, name: str) -> str:
        """Return the text of a field with its blanks, and line ends as people type them."""
        return self.fields.get(name, "").replace("\r\n", "\n")

    def chosen(self, prefix: str) -> list[str]:
        """Return what was ticked, of boxes whose names begin alike."""
        return [name.removeprefix(prefix) for name in self.fields if name.startswith(prefix)]


async def read_form(request: Request, *, seconds: float) -> Form:
    """Read the form of a request.

    Parameters
    ----------
    request
        The request.
    seconds
        How long its body may take.

    Raises
    ------
    ApiError
        400 when it is no form, or a field is repeated; 408, 413 or 415.
    """
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != MEDIA_TYPE:
        raise ApiError(415, "UNSUPPORTED_MEDIA_TYPE", f"a form is sent as {MEDIA_TYPE}")
    pieces, size = [], 0
    try:
        async with asyncio.timeout(seconds):
            async for piece in request.stream():
                size += len(piece)
                if size > MAX_FORM:
                    raise TOO_LARGE
                pieces.append(piece)
    except TimeoutError as error:
        raise LATE from error
    except ClientDisconnect as error:
        raise LATE from error
    return Form(parsed(b"".join(pieces)))


def parsed(body: bytes) -> dict[str, str]:
    """Return the fields of the body of a form.

    Raises
    ------
    ApiError
        400 when it cannot be read, or a field is repeated.
    """
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(body),
            errors="strict",
            max_num_fields=MAX_FIELDS,
        )
    except ValueError as error:
        raise bad_request("", "the form cannot be read; open the page and send it again") from error
    fields: dict[str, str] = {}
    for name, value in pairs:
        if name in fields:
            raise bad_request(name, f"{name}: the form has it twice; open the page again")
        fields[name] = value
    return fields
