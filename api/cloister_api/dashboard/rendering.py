"""Templates, static files, response headers, and forms as browsers send them without a script."""

import asyncio
import gzip
import hashlib
import re
import uuid
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any, Self
from urllib.parse import parse_qsl

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response

from cloister_api.errors import ApiError, bad_request
from cloister_clients.clock import utc_now

MAX_FORM = 64 * 1024
"""Largest body of a form, in bytes."""
MAX_FIELDS = 200
MEDIA_TYPE = "application/x-www-form-urlencoded"
TOO_LARGE = ApiError(413, "PAYLOAD_TOO_LARGE", f"a form has at most {MAX_FORM} bytes")
LATE = ApiError(408, "REQUEST_TIMEOUT", "the form did not arrive in time; send it again")


SENT_AS = {"instance_name": "name", "expires_at": "days", "user": "name"}
"""Fields of forms by those of the REST API, where the names differ."""


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a form."""

    fields: dict[str, str]
    """Values by name, as they were sent."""
    errors: Mapping[str, str] = field(default_factory=lambda: defaultdict(str))
    """Why it was refused, by the field whose value that is about; empty text where it is not."""

    def refused(self, error: ApiError) -> Self:
        """Return the form with what an error says about its fields."""
        found = defaultdict[str, str](str)
        for each in error.details:
            path = each.field or ""
            name = SENT_AS.get(path, re.split(r"[.\[]", path, maxsplit=1)[0])
            if name and name in self.fields and not found[name]:
                words = each.message.removeprefix(f"{path}: ")
                found[name] = f"{words[:1].upper()}{words[1:].rstrip('.')}."
        return replace(self, errors=defaultdict(str, {k: v for k, v in found.items() if v}))

    @property
    def first(self) -> str:
        """The first field with an error, by their order in the form; empty if there is none."""
        return next((name for name in self.fields if self.errors.get(name)), "")

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
        """Idempotency key of the form; None if it has none."""
        return self.get("retry") or None

    def get(self, name: str) -> str:
        """Return the value of a field without surrounding blanks; empty if it has none."""
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
    seconds
        How long its body may take.

    Raises
    ------
    ApiError
        400 when it is not a form, or a field is repeated; 408, 413 or 415.
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


CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types cloister"
)
"""Scripts are only static files: nothing else of this origin has the media type of one."""
SECURITY_HEADERS = (
    ("content-security-policy", CONTENT_POLICY),
    ("referrer-policy", "same-origin"),
    ("x-content-type-options", "nosniff"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
)
"""Headers of every response."""
UNSTORED = "private, no-cache"
"""Cache-Control of pages."""
FOREVER = "public, max-age=31536000, immutable"
"""Cache-Control of static files, whose addresses have their digest."""
PACKAGE = "cloister_api.dashboard"
KINDS = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
"""Media types of static files, by the end of their name."""


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file that pages refer to."""

    address: str
    """Path, which changes with the content."""
    media_type: str
    """Media type."""
    plain: bytes
    """Content."""
    compressed: bytes
    """Content, by gzip."""

    def response(self, accepted: str) -> Response:
        """Return it, compressed where the header Accept-Encoding allows."""
        headers = {"cache-control": FOREVER, "vary": "Accept-Encoding"}
        if "gzip" not in accepted:
            return Response(self.plain, media_type=self.media_type, headers=headers)
        headers["content-encoding"] = "gzip"
        return Response(self.compressed, media_type=self.media_type, headers=headers)


class Pages:
    """Builds pages of templates; each gets one view, and an unknown field of it is an error."""

    def __init__(self) -> None:
        self.static = {each.address: each for each in map(_read, _names())}
        """Static files by their path."""
        self._templates = Environment(
            loader=PackageLoader(PACKAGE),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        addresses = {_name_of(each.address): each.address for each in self.static.values()}
        self._templates.globals["static"] = addresses.__getitem__
        # Pages that belong to no organization.
        self._templates.globals |= {"navigation": (), "live": None, "theme": ""}
        self._templates.filters |= {
            "exact_moment": lambda at: exact_moment(moment_of(at)),
            "short_moment": lambda at: short_moment(moment_of(at), utc_now()),
            "pairs": lambda names: [(each, each) for each in names],
            "span": lambda at: span(utc_now() - moment_of(at)),
        }

    def page(self, template: str, values: Mapping[str, Any], code: int = 200) -> HTMLResponse:
        """Return a page, with an HTTP status."""
        text = self._templates.get_template(template).render(values)
        return HTMLResponse(text, code, headers={"cache-control": UNSTORED})


def moment_of(at: datetime | str) -> datetime:
    """Return a moment, which records write as text and ledger rows as such."""
    return (datetime.fromisoformat(at) if isinstance(at, str) else at).astimezone(UTC)


def exact_moment(at: datetime) -> str:
    """Return a moment to the second."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def short_moment(at: datetime, now: datetime) -> str:
    """Return a moment as people say it, with the year where it is another one."""
    year = "" if at.year == now.year else f" {at.year}"
    return f"{at.day} {at:%b}{year} {at:%H:%M}"


def span(passed: timedelta) -> str:
    """Return how long something has lasted, in its two largest units."""
    minutes = max(0, int(passed.total_seconds())) // 60
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    parts = [(days, "d"), (hours, "h"), (minutes, "min")]
    shown = [f"{count} {unit}" for count, unit in parts if count][:2]
    return " ".join(shown[:1] if days > DAYS else shown) or "0 min"


DAYS = 6
"""Days after which hours do not matter."""


def _names() -> list[str]:
    return sorted(
        each.name for each in files(PACKAGE).joinpath("static").iterdir() if each.is_file()
    )


def _read(name: str) -> StaticFile:
    content = files(PACKAGE).joinpath("static", name).read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:16]
    kind = KINDS[name.rpartition(".")[2]]
    packed = gzip.compress(content, mtime=0)
    return StaticFile(f"/static/{digest}/{name}", kind, content, packed)


def _name_of(address: str) -> str:
    return address.rpartition("/")[2]
