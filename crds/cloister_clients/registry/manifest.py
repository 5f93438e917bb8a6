"""Manifests, indexes and configurations of images, read from bytes. Pure: no I/O.

Forms: OCI image specification 1.1 ("Image Manifest", "Image Index", "Image Configuration") and
Docker's image manifest version 2, schema 2.
"""

import hashlib
from dataclasses import dataclass
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from typing_extensions import override

from cloister_clients.foreign_json import check_values
from cloister_clients.registry.errors import ManifestInvalid, PlatformMissing
from cloister_clients.registry.reference import is_digest
from cloister_crds.kinds.enclave import ImageArguments, ImageDirectory, ImageEnvironment
from cloister_crds.kinds.scalars import Word

__all__ = [
    "MANIFEST_TYPES",
    "Descriptor",
    "ImageConfig",
    "ManifestDocument",
    "Platform",
    "RuntimeConfig",
    "check_platform",
    "choose",
    "digest_of",
    "parse_config",
    "parse_document",
]

MANIFEST_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
"""Media types that are requested."""

_CONFIG_TYPES = (
    "",
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
)
MAX_VALUES = 65_536
"""Most values of a document: elements of lists, members of objects, nested ones counted each."""
MAX_MANIFESTS = 1024
"""Most entries of an index, and most layers of an image."""
MAX_CONTENT_BYTES = 2**40
"""Most bytes that a manifest may give one content: a thousand times the largest in use."""
MAX_RUNTIME_BYTES = 65_536
"""Most bytes of what an image says about its process; images in use have a tenth of that."""

_SAME_VARIANT = {("amd64", "v1"), ("arm64", "v8")}


@dataclass(frozen=True, slots=True)
class Platform:
    """The platform of an image, in the words of the OCI image index."""

    os: str
    """Operating system, such as ``linux``."""
    architecture: str
    """Architecture, such as ``amd64``."""
    variant: str = ""
    """Variant of the architecture; empty: the plain one."""

    @classmethod
    def parse(cls, text: str) -> "Platform":
        """Return the platform that a text such as ``linux/arm/v7`` names."""
        system, _, rest = text.partition("/")
        architecture, _, variant = rest.partition("/")
        return cls(system, architecture, variant)

    @property
    def plain(self) -> "Platform":
        """The same platform with a variant only where it is not the architecture's plain one."""
        if (self.architecture, self.variant) in _SAME_VARIANT:
            return Platform(self.os, self.architecture)
        return self

    @override
    def __str__(self) -> str:
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)


class _Part(BaseModel):
    """A part of a document; what the reader does not use is left out."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="ignore", strict=True)


class _PlatformPart(_Part):
    """Platform of an entry of an index."""

    os: str = ""
    architecture: str = ""
    variant: str = ""


class Descriptor(_Part):
    """A pointer to content."""

    media_type: str = Field(default="", alias="mediaType")
    """Media type of the content."""
    digest: str
    """Digest of the content."""
    size: int = Field(ge=0, le=MAX_CONTENT_BYTES)
    """Size of the content, in bytes."""
    platform: _PlatformPart | None = None
    """Platform, in an index only."""

    @property
    def runs_on(self) -> Platform | None:
        """The platform of an image; None for what is not an image, such as an attestation."""
        part = self.platform
        if part is None or part.os in {"", "unknown"} or part.architecture in {"", "unknown"}:
            return None
        return Platform(part.os, part.architecture, part.variant)


# Only the first problem is shown: 65,000 of them would take a third of a second.
Descriptors = Annotated[tuple[Descriptor, ...], Field(max_length=MAX_MANIFESTS, fail_fast=True)]
Arguments = Annotated[ImageArguments, Field(fail_fast=True)]
Environment = Annotated[ImageEnvironment, Field(fail_fast=True)]


class ManifestDocument(_Part):
    """A manifest (config, layers) or an index (manifests)."""

    schema_version: int = Field(alias="schemaVersion")
    """Version of the form; 2."""
    media_type: str = Field(default="", alias="mediaType")
    """Media type that the document gives itself."""
    manifests: Descriptors | None = None
    """Manifests of an index; None in a manifest."""
    config: Descriptor | None = None
    """Configuration of a manifest; None in an index."""
    layers: Descriptors | None = None
    """Layers of a manifest; None in an index."""

    @property
    def size(self) -> int:
        """Size of configuration and layers as they are pulled, in bytes."""
        parts = (*(self.layers or ()), *((self.config,) if self.config else ()))
        return sum(part.size for part in parts)


class RuntimeConfig(_Part):
    """What an image says about its process, within the bounds of what an Enclave records of it."""

    entrypoint: Arguments | None = Field(default=None, alias="Entrypoint")
    """Program and first arguments; None: none."""
    cmd: Arguments | None = Field(default=None, alias="Cmd")
    """Further arguments, or the program where there is no entrypoint; None: none."""
    env: Environment | None = Field(default=None, alias="Env")
    """Environment, each ``NAME=value``."""
    user: Word | None = Field(default="", alias="User")
    """User and group; empty: root."""
    working_dir: ImageDirectory | None = Field(default="", alias="WorkingDir")
    """Working directory; empty: the root directory."""
    stop_signal: Word | None = Field(default="", alias="StopSignal")
    """Signal that ends the process; empty: SIGTERM."""

    @property
    def size(self) -> int:
        """Size of all that it says, in bytes of JSON, as an Enclave records it."""
        return len(self.model_dump_json())


class ImageConfig(_Part):
    """Configuration of an image."""

    os: str = ""
    """Operating system it is made for."""
    architecture: str = ""
    """Architecture it is made for."""
    variant: str = ""
    """Variant of the architecture."""
    config: RuntimeConfig | None = None
    """What it says about its process."""

    @property
    def runs_on(self) -> Platform:
        """The platform it is made for."""
        return Platform(self.os, self.architecture, self.variant)


def digest_of(content: bytes, like: str) -> str:
    """Compute the digest of content with the algorithm of another digest.

    Parameters
    ----------
    like
        Digest with sha256 or sha512.
    """
    algorithm = like.partition(":")[0]
    return f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"


def parse_document(content: bytes, name: str) -> ManifestDocument:
    """Read a manifest or an index.

    Parameters
    ----------
    content
        Its bytes, whose digest was checked.

    Raises
    ------
    ManifestInvalid
        When it is neither a manifest nor an index of images, both together, of a form that is no
        longer used, or beyond a bound.
    """
    document = _parse(ManifestDocument, content, f"the manifest of {name}")
    if document.schema_version != 2:  # noqa: PLR2004 - the version is the figure
        raise ManifestInvalid(
            f"{name} is an image of Docker's schema 1, which is no longer used; "
            "build and push it again"
        )
    is_index, is_manifest = document.manifests is not None, document.config is not None
    if is_index == is_manifest or (is_index and document.layers is not None):
        # A document that can be read in two ways means two things to two readers.
        raise ManifestInvalid(f"{name} is neither an image nor an index of images; push it again")
    for part in (*(document.manifests or ()), *((document.config,) if document.config else ())):
        if not is_digest(part.digest):
            raise ManifestInvalid(f"{name} names content with a digest that cannot be checked")
    if document.config is not None and document.config.media_type not in _CONFIG_TYPES:
        raise ManifestInvalid(
            f"{name} is not a container image: its content is of the type "
            f"{shown(document.config.media_type)}; use the reference of an image"
        )
    if document.config is not None and document.layers is None:
        raise ManifestInvalid(f"{name} is an image without a list of layers; push it again")
    return document


def choose(document: ManifestDocument, platform: Platform, name: str) -> Descriptor:
    """Choose the manifest of a platform from an index.

    The plain variant of the architecture is preferred where none is requested.

    Raises
    ------
    PlatformMissing
        When the index has none for it; the message lists what it has.
    """
    wanted = platform.plain
    entries = [(each.runs_on.plain, each) for each in document.manifests or () if each.runs_on]
    fitting = [
        (found, each)
        for found, each in entries
        if (found.os, found.architecture) == (wanted.os, wanted.architecture)
        and (not wanted.variant or found.variant == wanted.variant)
    ]
    if not fitting:
        available = ", ".join(sorted({str(found) for found, _ in entries})) or "no platform"
        listed = shown(available, most=300)
        raise PlatformMissing(
            f"{name} is not built for {platform} but for {listed}; "
            f"build and push it for {platform} too"
        )
    return min(fitting, key=lambda pair: pair[0].variant != wanted.variant)[1]


def parse_config(content: bytes, name: str) -> ImageConfig:
    """Read the configuration of an image.

    Raises
    ------
    ManifestInvalid
        When it does not have the form, or is beyond a bound.
    """
    found = _parse(ImageConfig, content, f"the configuration of {name}")
    size = found.config.size if found.config else 0
    if size > MAX_RUNTIME_BYTES:
        raise ManifestInvalid(
            f"the configuration of {name} is invalid: config: Entrypoint, Cmd and Env have {size} "
            f"bytes, and at most {MAX_RUNTIME_BYTES} may be; build it with less"
        )
    return found


def check_platform(config: ImageConfig, platform: Platform, name: str) -> None:
    """Check that an image without an index is made for a platform.

    Raises
    ------
    PlatformMissing
        When it says that it is made for another one; one that says nothing passes.
    """
    found, wanted = config.runs_on.plain, platform.plain
    if not found.os and not found.architecture:
        return
    if (found.os, found.architecture) != (wanted.os, wanted.architecture):
        raise PlatformMissing(
            f"{name} is built for {shown(str(found))}, not for {platform}; "
            f"build and push it for {platform}"
        )


def shown(text: str, *, most: int = 100) -> str:
    """Show a text that a registry chose in a message: on one line, and cut."""
    return "".join(each if each.isprintable() else " " for each in text[:most])


P = TypeVar("P", bound=_Part)


def _parse(kind: type[P], content: bytes, what: str) -> P:
    """Read a document of a form, bounded in values and depth.

    Raises
    ------
    ManifestInvalid
        When it does not have the form; names the first field that is wrong.
    """
    try:
        check_values(content, most=MAX_VALUES)
        return kind.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the document"
        problem = f"{where}: {shown(first['msg'], most=300)}"
    except ValueError as error:
        problem = str(error)
    raise ManifestInvalid(f"{what} is invalid: {problem}; build and push the image again")
