"""What can go wrong between a reference and an image's configuration.

    RegistryError
    ├── ReferenceInvalid         terminal   not a reference of an image
    ├── ImageNotFound            terminal   the repository or the digest is not there
    ├── PlatformMissing          terminal   the image is for other platforms
    ├── ManifestInvalid          terminal   not a container image, or of a form that is not read
    ├── RegistryUnauthorized     terminal   private, or the credentials are not good for it
    ├── RegistryRefused          terminal   the guard keeps the registry from being called
    └── RegistryUnavailable      transient  no response, or not the content of the digest
        └── RegistryRateLimited  transient  too many requests; retry_after says until when

Every message is for the user who made the request and holds no credentials.
"""

# ruff: noqa: N818 - the names say what is wrong; they are the words of conditions too

from collections.abc import Sequence
from typing import ClassVar

__all__ = [
    "CredentialsInvalid",
    "ImageNotFound",
    "ManifestInvalid",
    "PlatformMissing",
    "ReferenceInvalid",
    "RegistryError",
    "RegistryRateLimited",
    "RegistryRefused",
    "RegistryUnauthorized",
    "RegistryUnavailable",
]


class RegistryError(Exception):
    """An image could not be resolved."""

    reason: ClassVar[str] = "RegistryError"
    """Stable CamelCase word for conditions and programs."""
    transient: ClassVar[bool] = False
    """True: asking again later may succeed. False: something must change."""

    @property
    def message(self) -> str:
        """Sentence for people: what is wrong and what to do."""
        return str(self)


class ReferenceInvalid(RegistryError):
    """A text is not a reference of an image."""

    reason = "ReferenceInvalid"


class ImageNotFound(RegistryError):
    """The registry has no such repository, tag or digest."""

    reason = "ImageNotFound"


class PlatformMissing(RegistryError):
    """The image has nothing for the platform that is requested."""

    reason = "PlatformMissing"


class ManifestInvalid(RegistryError):
    """The content is not a container image, or in a form that is not supported."""

    reason = "ManifestInvalid"


class RegistryUnauthorized(RegistryError):
    """The image may not be read with the credentials there are."""

    reason = "RegistryUnauthorized"


class RegistryRefused(RegistryError):
    """The guard keeps the registry, its token server or its storage from being called."""

    reason = "RegistryRefused"


class RegistryUnavailable(RegistryError):
    """The registry did not respond, or not as it should; a later attempt may succeed."""

    reason = "RegistryUnavailable"
    transient = True

    def __init__(
        self, message: str, *, retry_after: float | None = None, timed_out: bool = False
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds to wait as the registry requested; None when it did not."""
        self.timed_out = timed_out
        """Whether it did not respond in time."""


class RegistryRateLimited(RegistryUnavailable):
    """The registry wants fewer requests."""

    reason = "RegistryRateLimited"


class CredentialsInvalid(ValueError):
    """Credentials of a registry have not the form that the registry needs."""

    def __init__(self, message: str, problems: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)
        """Each wrong field and what is wrong with it; empty if it is not about fields."""
