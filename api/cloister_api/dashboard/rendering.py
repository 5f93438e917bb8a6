"""Templates, static files, and the headers of every response."""

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

__all__ = ["SECURITY_HEADERS", "Pages", "StaticFile"]

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types cloister"
)
"""Scripts are static files alone: nothing else of this origin has the media type of one."""
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
        self._templates.globals |= {"navigation": (), "live": None}

    def page(self, template: str, values: Mapping[str, Any], code: int = 200) -> HTMLResponse:
        """Return a page, with an HTTP status."""
        text = self._templates.get_template(template).render(values)
        return HTMLResponse(text, code, headers={"cache-control": UNSTORED})


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
