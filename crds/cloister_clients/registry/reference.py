"""References of images: ``registry/repository:tag@digest``, taken apart.

Grammar and defaults as in the distribution project's package ``reference``: without a registry
an image belongs to docker.io, without a second part of the name to its ``library``.
"""

import re
from dataclasses import dataclass

from typing_extensions import override

from cloister_clients.registry.errors import ReferenceInvalid

__all__ = ["DOCKER_HUB", "ImageReference", "is_digest", "parse_reference"]

DOCKER_HUB = "docker.io"
"""Registry of a reference that names none."""

_COMPONENT = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*")
_LABEL = r"(?:[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9-]*[A-Za-z0-9])"
_REGISTRY = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{{1,5}})?")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
_MAX_NAME = 255
_MAX_TEXT = 1024
_MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class ImageReference:
    """One image, by name and by what pins it."""

    registry: str
    """Host of the registry with its port, such as ``ghcr.io``."""
    repository: str
    """Name of the repository in the registry, such as ``library/nginx``."""
    tag: str | None = None
    """Tag; None when none is written."""
    digest: str | None = None
    """Digest, ``sha256:`` or ``sha512:`` and its digits; None when none is written."""

    @property
    def name(self) -> str:
        """Registry and repository."""
        return f"{self.registry}/{self.repository}"

    @property
    def pinned(self) -> str:
        """Name and digest without the tag, as a container runtime pulls it.

        Raises
        ------
        ReferenceInvalid
            When the reference has no digest.
        """
        if self.digest is None:
            raise ReferenceInvalid(f"{self} has no digest; write {self.name}@sha256:...")
        return f"{self.name}@{self.digest}"

    @override
    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag is not None else ""
        digest = f"@{self.digest}" if self.digest is not None else ""
        return f"{self.name}{tag}{digest}"


def is_digest(text: str) -> bool:
    """Return whether a text is a digest that can be checked: sha256 or sha512."""
    return _DIGEST.fullmatch(text) is not None


def parse_reference(text: str) -> ImageReference:
    """Parse a reference.

    Parameters
    ----------
    text
        Such as ``ghcr.io/acme/app:1.2@sha256:...``; registry, tag and digest may be missing.

    Returns
    -------
    ImageReference
        The parts, with the registry and the ``library`` of Docker Hub filled in.

    Raises
    ------
    ReferenceInvalid
        When a part does not follow the grammar; the message names the part.
    """
    # The length first: the rest of the text is quoted in messages.
    if len(text) > _MAX_TEXT:
        raise ReferenceInvalid(f"the image {text[:80]!r}... is too long for a reference")
    rest, at, digest = text.partition("@")
    if at and not is_digest(digest):
        raise ReferenceInvalid(
            f"the digest of the image {text!r} is invalid; write @sha256: and 64 lower-case "
            "hexadecimal digits"
        )
    rest, tag = _split_tag(rest)
    if tag is not None and not _TAG.fullmatch(tag):
        raise ReferenceInvalid(
            f"the tag of the image {text!r} is invalid; a tag has letters, digits, '_', '.' and "
            "'-', at most 128"
        )
    registry, repository = _split_registry(rest)
    _check_registry(text, registry)
    # Docker Hub serves its official images below this name.
    if registry == DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    if len(repository) > _MAX_NAME or not all(
        _COMPONENT.fullmatch(part) for part in repository.split("/")
    ):
        raise ReferenceInvalid(
            f"the name of the image {text!r} is invalid; its parts have lower-case letters and "
            "digits, with '.', '_' or '-' between them"
        )
    return ImageReference(registry, repository, tag, digest if at else None)


def _check_registry(text: str, registry: str) -> None:
    """Check host and port."""
    port = registry.rpartition(":")[2] if re.search(r":\d+$", registry) else "0"
    if not _REGISTRY.fullmatch(registry) or int(port) > _MAX_PORT:
        raise ReferenceInvalid(
            f"the registry of the image {text!r} is invalid; write a host name, and a port "
            "after ':'"
        )


def _split_tag(name: str) -> tuple[str, str | None]:
    """Cut the tag off; a colon before the last slash belongs to the registry's port."""
    slash = name.rfind("/")
    colon = name.rfind(":")
    if colon > slash:
        return name[:colon], name[colon + 1 :]
    return name, None


def _split_registry(name: str) -> tuple[str, str]:
    """Cut the registry off: a first part with a dot, a colon or capitals, or ``localhost``."""
    first, slash, rest = name.partition("/")
    is_host = "." in first or ":" in first or first == "localhost" or first.lower() != first
    if not slash or not is_host:
        return DOCKER_HUB, name
    if first in {"index.docker.io", "registry-1.docker.io"}:
        first = DOCKER_HUB
    return first, rest
