"""The shim: which paths can be reached, from where, and by whom.

Source: spec 46; RFC 6454 for origins, RFC 3986 for paths.
"""

import re
from typing import Any, Final

from cloister_crds.config.limits import MAX_LIST
from cloister_crds.config.model import EncryptedBodies, TlsMode
from cloister_crds.config.syntax.reading import Field, Section, Spot, Table, read_section, show
from cloister_crds.config.syntax.scalars import ScalarKind
from cloister_crds.problems import Severity

__all__ = ["ORIGIN_PATTERN", "SHIM", "check_shim", "read_shim"]

HOST: Final = r"[a-zA-Z0-9]([a-zA-Z0-9._-]*[a-zA-Z0-9])?|\[[0-9a-fA-F:.]+\]"
ORIGIN_PATTERN: Final = rf"[a-zA-Z][a-zA-Z0-9+.-]*://({HOST})(:[0-9]{{1,5}})?"
"""What an origin looks like."""
MAX_ORIGIN: Final = 300
"""Most characters of an origin: a host name has 253."""
DEFAULT_PORTS: Final = {"https": ":443", "http": ":80"}
PATH = re.compile(r"/(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]++|%[0-9A-Fa-f]{2})*+")
"""What the path of a request can look like (RFC 3986, section 3.3), plus the wildcard."""


def _read_paths(spot: Spot) -> tuple[str, ...] | None:
    items = spot.items(MAX_LIST, "a list of paths such as [/v1/*]")
    if items is None:
        return None
    if not items:
        spot.error("EmptyList", "is empty, so that nothing can be reached: list paths, or /*")
        return None
    return _read_path_list(items)


def _read_path_list(items: list[Spot]) -> tuple[str, ...]:
    paths: dict[str, None] = {}
    for item in items:
        path = item.text("a path such as /v1/*")
        if path is None:
            continue
        if not path.startswith("/"):
            item.error("InvalidPath", f"{show(path)} does not begin with /: write it in front")
            continue
        if path in paths:
            item.warn("DuplicateEntry", f"{show(path)} is listed twice: list it once")
        elif not PATH.fullmatch(path):
            message = "has characters that no path of a request has: write them percent-encoded"
            item.warn("PathNeverMatches", f"{show(path)} {message}, without a query")
        elif "*" in path[:-1]:
            message = "a * before the end is not a wildcard: requests must have that very character"
            item.warn("LiteralWildcard", f"in {show(path)}, {message}")
        paths[path] = None
    return tuple(paths)


def _read_endpoints(spot: Spot) -> tuple[str, ...] | None:
    """Read the paths that need a key; no value means the default."""
    if spot.kind is ScalarKind.NULL:
        return None
    items = spot.items(MAX_LIST, "a list of paths, or nothing for /v1/chat/completions")
    return None if items is None else _read_path_list(items)


def _read_origins(spot: Spot) -> tuple[str, ...] | None:
    items = spot.items(MAX_LIST, "a list of origins such as [https://app.example.com]")
    if items is None:
        return None
    origins: dict[str, None] = {}
    for item in items:
        origin = _read_origin(item, single=len(items) == 1)
        if origin is not None and origin in origins:
            item.warn("DuplicateEntry", f"{origin} is listed twice: list it once")
        elif origin is not None:
            origins[origin] = None
    return tuple(origins)


def _read_origin(spot: Spot, *, single: bool) -> str | None:
    text = spot.text("an origin such as https://app.example.com")
    if text is None or (text == "*" and single):
        return text
    if text == "*":
        message = "* allows all origins: write only it, or remove it"
        spot.error("InvalidOrigin", message)
        return None
    if len(text) > MAX_ORIGIN or not re.fullmatch(ORIGIN_PATTERN, text):
        message = "write scheme://host or scheme://host:port, without a path or wildcard"
        spot.error("InvalidOrigin", f"{show(text)} is not an origin: {message}")
        return None
    if text != text.lower():
        message = f"browsers send origins in lower case: write {text.lower()}"
        spot.error("InvalidOrigin", f"{show(text)} never matches: {message}")
        return None
    port = DEFAULT_PORTS.get(text.partition(":")[0])
    if port and text.endswith(port):
        message = f"browsers leave the usual port out: write {text.removesuffix(port)}"
        spot.warn("OriginNeverMatches", f"{show(text)} never matches: {message}")
    return text


def _read_tls_mode(spot: Spot) -> TlsMode | None:
    word = spot.word(tuple(str(mode) for mode in TlsMode))
    if word is not None and word != TlsMode.SELF_SIGNED:
        _platform_decides(spot)
    return None if word is None else TlsMode(word)


def _read_ehbp(spot: Spot) -> EncryptedBodies | None:
    word = spot.word(tuple(str(mode) for mode in EncryptedBodies))
    return None if word is None else EncryptedBodies(word)


def _platform_decides(spot: Spot) -> None:
    message = "has no effect: certificates and attestation follow the platform's settings"
    spot.warn("PlatformDecides", message)


def _read_inert_text(spot: Spot) -> str | None:
    _platform_decides(spot)
    return spot.text()


def _read_inert_flag(spot: Spot) -> bool | None:
    _platform_decides(spot)
    return spot.boolean()


def _read_name(spot: Spot) -> str | None:
    return spot.text("the name of a container")


def _positive(spot: Spot) -> int | None:
    return spot.integer(1, 2**31 - 1)


PATH_SCHEMA: Final = {"type": "string", "pattern": "^/"}
INERT: Final = "Has no effect: the platform decides."

SHIM: Final = Table(
    noun="the shim",
    fields=(
        Field(
            "upstream-port",
            lambda spot: spot.integer(1, 65535),
            {"type": "integer", "minimum": 1, "maximum": 65535},
            "Port that the upstream container listens on.",
            required=True,
            missing="write the port that the container listens on",
        ),
        Field(
            "paths",
            _read_paths,
            {"type": "array", "items": PATH_SCHEMA, "minItems": 1, "maxItems": MAX_LIST},
            "Paths that can be reached; a * at the end is a wildcard, all others return 404.",
            required=True,
            missing="list the paths that can be reached, or /*",
        ),
        Field(
            "upstream-container",
            _read_name,
            {"type": "string"},
            "Container that requests go to; the first by default.",
        ),
        Field(
            "origins",
            _read_origins,
            {
                "type": "array",
                "items": {"type": "string", "pattern": rf"^(\*|{ORIGIN_PATTERN})$"},
                "maxItems": MAX_LIST,
            },
            "Origins that browsers may come from; all when it is absent.",
        ),
        Field(
            "authenticated",
            Spot.boolean,
            {"type": "boolean"},
            "Whether the authenticated endpoints need an API key; false by default.",
        ),
        Field(
            "authenticated-endpoints",
            _read_endpoints,
            {"type": ["array", "null"], "items": PATH_SCHEMA, "maxItems": MAX_LIST},
            "Paths that need a key; /v1/chat/completions by default, none when it is empty.",
        ),
        Field(
            "rate-limit",
            Spot.number,
            {"type": "number", "exclusiveMinimum": 0},
            "Requests per second and caller; no limit by default.",
        ),
        Field(
            "rate-burst",
            _positive,
            {"type": "integer", "minimum": 1},
            "Requests of a caller in one burst above the rate limit.",
        ),
        Field(
            "tls-mode",
            _read_tls_mode,
            {"enum": [str(mode) for mode in TlsMode]},
            "Only self-signed has an effect, else the platform decides.",
        ),
        Field(
            "ehbp",
            _read_ehbp,
            {"enum": [str(mode) for mode in EncryptedBodies]},
            "Whether bodies may, or must, be encrypted to a key of the enclave; off by default.",
        ),
        Field("tls-env", _read_inert_text, {"type": "string"}, INERT),
        Field("tls-challenge", _read_inert_text, {"type": "string"}, INERT),
        Field("tls-wildcard", _read_inert_flag, {"type": "boolean"}, INERT),
        Field("publish-attestation", _read_inert_flag, {"type": "boolean"}, INERT),
    ),
    hints={"listen-port": "the shim's port is the platform's: remove it"},
    unknown=Severity.WARNING,
)
"""The keys of the shim; further ones are warnings, since nothing reads them."""

ACTING: Final = (
    "upstream_port",
    "paths",
    "upstream_container",
    "origins",
    "authenticated",
    "authenticated_endpoints",
    "rate_limit",
    "rate_burst",
    "tls_mode",
    "ehbp",
)
"""The values that a `Shim` is made of."""


def read_shim(spot: Spot) -> Section | None:
    """Read the shim."""
    return read_section(spot, SHIM)


def check_shim(shim: Section, names: list[str | None]) -> dict[str, Any]:
    """Check the shim against the containers and give what a `Shim` is made of.

    Parameters
    ----------
    names
        The names of all containers in their order, None where one cannot be read.
    """
    values = {key: value for key, value in shim.values.items() if key in ACTING}
    target = shim.get("upstream-container")
    if target is None and names and "upstream-container" not in shim.fields:
        values["upstream_container"] = names[0]
    elif target is not None and target not in names and None not in names:
        near = shim.spot.report.guess(target, tuple(name for name in names if name))
        hint = f"did you mean {near}?" if near else "write the name of one in the file"
        message = f"no container is named {show(target)}: {hint}"
        shim.at("upstream-container").error("UnknownContainer", message)
    _check_effects(shim)
    return values


def _check_effects(shim: Section) -> None:
    """Report keys that do nothing without another."""
    if "rate-burst" in shim.fields and "rate-limit" not in shim.fields:
        shim.at("rate-burst").warn("NoEffect", "does nothing without rate-limit: write that too")
    if shim.get("authenticated-endpoints") and "authenticated" not in shim.fields:
        message = "does nothing without authenticated: true: write that too"
        shim.at("authenticated-endpoints").warn("NoEffect", message)
