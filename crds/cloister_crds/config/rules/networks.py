"""Networks, and which containers are on them.

Source: spec 42.13, 44; RFC 1123, section 2.1, for host names.
"""

import ipaddress
import re
from typing import Final

from cloister_crds.config.effective import NETWORKS_SINCE
from cloister_crds.config.limits import MAX_ALLOW, MAX_LIST, MAX_NETWORKS
from cloister_crds.config.model import Egress, Network
from cloister_crds.config.syntax.reading import Field, Section, Spot, Table, read_section, show
from cloister_crds.config.syntax.scalars import ScalarKind

__all__ = [
    "NETWORK",
    "NETWORK_NAME",
    "check_attached",
    "check_network_use",
    "check_version",
    "read_attached",
    "read_networks",
]

NETWORK_NAME: Final = r"[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?"
"""What a name looks like."""
RESERVED: Final = "shim-net"
LABEL: Final = r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
HOST = re.compile(rf"{LABEL}(\.{LABEL})*")
MAX_HOST: Final = 253


def _read_egress(spot: Spot) -> Egress | None:
    word = spot.word(tuple(Egress))
    return None if word is None else Egress(word)


def _read_allow(spot: Spot) -> tuple[str, ...] | None:
    items = spot.items(MAX_ALLOW, "a list of host names")
    if items is None:
        return None
    hosts: list[str] = []
    for item in items:
        host = _read_host(item)
        if host is not None and host in hosts:
            item.warn("DuplicateEntry", f"{host} is listed twice: list it once")
        elif host is not None:
            hosts.append(host)
    return tuple(hosts)


def _read_host(spot: Spot) -> str | None:
    text = spot.text("a host name such as api.example.com")
    if text is None:
        return None
    message = None
    if "*" in text:
        message = "wildcards are not possible: list each host name, those of redirects as well"
    elif _is_address(text):
        message = "addresses are not possible: write the host name"
    elif "/" in text or ":" in text:
        message = "write only the host name, without scheme, port and path"
    elif len(text) > MAX_HOST or not HOST.fullmatch(text):
        message = "write letters, digits and hyphens between dots"
    if message is not None:
        spot.error("InvalidHost", f"{show(text)} is not a host name: {message}")
        return None
    return text.lower()


def _is_address(text: str) -> bool:
    """Return whether resolvers take it for an address, such as ``127.1`` and ``0x7f.1``."""
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        last = text.rstrip(".").rsplit(".", 1)[-1]
        return re.fullmatch(r"[0-9]+|0[xX][0-9a-fA-F]*", last) is not None
    return True


NETWORK: Final = Table(
    noun="a network",
    fields=(
        Field(
            "egress",
            _read_egress,
            {"enum": [str(word) for word in Egress]},
            "Where its containers may go: closed (default), allowlist or open.",
        ),
        Field(
            "allow",
            _read_allow,
            {"type": "array", "items": {"type": "string"}, "maxItems": MAX_ALLOW},
            "Host names that an allowlist admits.",
        ),
    ),
    hints={"driver": "every network is a bridge of the enclave: remove it"},
)
"""The keys of a network."""


def read_networks(spot: Spot) -> dict[str, Network] | None:
    """Read the networks by their names."""
    pairs = spot.entries(MAX_NETWORKS, "a map such as {backend: {egress: open}}")
    if pairs is None:
        return None
    networks = {}
    for key, value in pairs:
        name = key.text("the name of a network")
        if name is None:
            continue
        network = _read_network(value)
        if name == RESERVED:
            message = f"{RESERVED} is the shim's own network: choose another name"
            key.error("ReservedName", message)
        elif not re.fullmatch(NETWORK_NAME, name):
            message = "write 1 to 15 lower-case letters, digits and inner hyphens"
            key.error("InvalidName", f"{show(name)} is not a network name: {message}")
        elif network is not None:
            networks[name] = network
    return networks


def _read_network(spot: Spot) -> Network | None:
    if spot.kind is ScalarKind.NULL:
        return Network()
    section = read_section(spot, NETWORK)
    if section is None:
        return None
    egress, allow = section.get("egress", Egress.CLOSED), section.get("allow", ())
    if section.settled("egress"):
        if egress is not Egress.ALLOWLIST and "allow" in section.fields:
            message = f"has no place in a network that is {egress}: write egress: allowlist"
            section.at("allow").error("AllowWithoutAllowlist", message)
        elif egress is Egress.ALLOWLIST and not _has_entries(section):
            message = "an allowlist without hosts lets nothing out: list hosts under allow"
            section.at("allow").warn("EmptyAllowlist", message)
    return Network(egress=egress, allow=allow)


def _has_entries(section: Section) -> bool:
    """Return whether hosts are listed, be they right or not."""
    allow = section.fields.get("allow")
    return allow is not None and getattr(allow.node, "items", None) != []


def read_attached(spot: Spot) -> tuple[str, ...] | None:
    """Read the names of a container's networks."""
    items = spot.items(MAX_LIST, "a list of names of networks")
    if items is None:
        return None
    names: list[str] = []
    for item in items:
        name = item.text("the name of a network")
        if name is not None and name in names:
            item.error("DuplicateEntry", f"{name} is listed twice: list it once")
        elif name == RESERVED:
            message = f"{RESERVED} is attached to the shim's target automatically: remove it"
            item.error("ReservedName", message)
        elif name is not None:
            names.append(name)
    return tuple(names)


def check_version(section: Section) -> None:
    """Refuse networks in a file that is older than they are."""
    if "networks" in section.fields and section.spot.report.since(NETWORKS_SINCE) is False:
        message = "networks need cvm-version 0.10.0 or newer: raise it, or remove the networks"
        section.at("networks").error("VersionTooOld", message)


def check_attached(container: Section, top: Section) -> None:
    """Check that a container's networks are there, and at most one of them leads out."""
    if not top.settled("networks") or not container.settled("networks"):
        return
    declared: dict[str, Network] = top.get("networks", {})
    written = {key.raw for key, _ in _declared(top)}
    names = container.get("networks", ())
    spots = container.at("networks").items(None) if names else []
    for spot in spots or []:
        name = spot.raw
        if spot.kind is ScalarKind.TEXT and name not in {*written, RESERVED}:
            near = spot.report.guess(name, tuple(sorted(written)))
            hint = f"did you mean {near}?" if near else "declare it under networks"
            spot.error("UnknownNetwork", f"no network is named {show(name)}: {hint}")
    leading = [name for name in names if name in declared and declared[name].egress != "closed"]
    if len(leading) > 1:
        message = f"{' and '.join(leading)} all lead out: keep one of them, the rest closed"
        container.at("networks").error("SeveralEgress", message)


def _declared(top: Section) -> list[tuple[Spot, Spot]]:
    if "networks" not in top.fields:
        return []
    return top.at("networks").entries(None) or []


def check_network_use(top: Section, containers: tuple[Section, ...]) -> None:
    """Report networks that no container is on."""
    if not all(container.settled("networks") for container in containers):
        return
    used = {name for container in containers for name in container.get("networks", ())}
    known = top.get("networks", {})
    for key, value in _declared(top):
        if key.raw in known and key.raw not in used and key.raw != RESERVED:
            message = "no container is on this network: list it under a container's networks"
            value.warn("NetworkUnused", message)
