"""Copies built images into a registry, byte by byte."""

import hashlib
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from dev.images.commands import run
from dev.images.errors import ImageError

UNKNOWN: Final = ("manifest unknown", "name unknown")
"""What a registry says of what it does not have (OCI distribution specification, error codes)."""


def push(layout: Path, names: Iterable[str], registry: str, tag: str) -> None:
    """Copy images of all architectures; what the registry has already is not sent again.

    Parameters
    ----------
    layout
        Folder of the images (OCI image layout specification).
    registry
        ``host/path``; one on this machine is spoken to without TLS.

    Raises
    ------
    ImageError
        When the registry refuses or does not respond.
    """
    for name in names:
        push_one(layout, name, f"{registry}/{name}", tag)


def push_one(layout: Path, name: str, repository: str, tag: str) -> None:
    """Copy one image, or another artifact, as `push` does.

    Parameters
    ----------
    layout
        Folder that has it (OCI image layout specification).
    repository
        ``host/path``.

    Raises
    ------
    ImageError
        When the registry refuses or does not respond.
    """
    run(
        [
            *("skopeo", "copy", "--quiet", "--all", "--preserve-digests"),
            f"--dest-tls-verify={_checked(repository)}",
            f"oci:{layout}:{name}",
            f"docker://{repository}:{tag}",
        ]
    )


def digest_of(reference: str) -> str:
    """Return the digest that a registry has under a tag; empty = nothing.

    Raises
    ------
    ImageError
        When the registry refuses or does not respond.
    """
    command = ("skopeo", "inspect", "--raw", f"--tls-verify={_checked(reference)}")
    try:
        raw = run([*command, f"docker://{reference}"])
    except ImageError as error:
        if any(word in str(error) for word in UNKNOWN):
            return ""
        raise
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


def _checked(registry: str) -> str:
    """Return whether certificates are checked, as skopeo's options have it."""
    return "false" if is_here(registry) else "true"


def is_here(registry: str) -> bool:
    """Return whether a registry is on this machine, where it is spoken to without TLS.

    Parameters
    ----------
    registry
        ``host``, or what begins with it.
    """
    host = registry.partition("/")[0].rpartition(":")[0] or registry.partition("/")[0]
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
