"""A release, and what each provider of releases can do.

The facade and the operator know this protocol only; which provider is used is a setting.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from cloister_clients.sources.errors import SourceError, TagMoved

__all__ = [
    "ListedRelease",
    "PublishedRelease",
    "PublishedTag",
    "SourceProvider",
    "pinned_commit",
    "reading",
]


@dataclass(frozen=True, slots=True)
class PublishedRelease:
    """The configuration file at a published tag, as bytes."""

    repo: str
    """Repository, ``owner/name``, as it was requested."""
    tag: str
    """Tag, as it was requested."""
    commit: str
    """Commit that the file was read at: 40 hexadecimal digits."""
    published: datetime
    """When it was published, in UTC; for plain git the date of the tag, else of the commit."""
    file_name: str
    """Which of the possible names the file has."""
    file: bytes = field(repr=False)
    """The file, byte for byte."""
    tag_commit: str
    """Commit that the tag points to now; another one than `commit` only where that was kept."""


@dataclass(frozen=True, slots=True)
class PublishedTag:
    """The newest release of a repository, without its file."""

    tag: str
    """Its tag."""
    commit: str
    """Commit that the tag points to: 40 hexadecimal digits."""
    published: datetime
    """When it was published, in UTC."""


@dataclass(frozen=True, slots=True)
class ListedRelease:
    """An entry of a repository's list of releases."""

    tag: str
    """Its tag."""
    published: datetime
    """When it was published, in UTC."""
    prerelease: bool = False
    """Whether the forge calls it a pre-release; plain git has none."""
    commit: str | None = None
    """Commit that the tag points to; None = the list does not say."""


class SourceProvider(Protocol):
    """Where repositories live."""

    async def resolve(
        self, repo: str, tag: str, *, commit: str | None = None, kept: bool = False
    ) -> PublishedRelease:
        """Read the configuration file at a tag.

        Parameters
        ----------
        repo
            Repository, ``owner/name``.
        tag
            Tag with a published release.
        commit
            Commit that the tag must point to; None: whichever it points to.
        kept
            Whether the commit was deployed from this tag before: it is then read even if the tag
            has moved, as long as the source still has it.

        Raises
        ------
        SourceError
            Of the class that says why, see `cloister_clients.sources.errors`.
        """
        ...

    async def latest(self, repo: str) -> PublishedTag | None:
        """Return the newest published release; None when the repository has none.

        Raises
        ------
        SourceError
            Of the class that says why, see `cloister_clients.sources.errors`.
        """
        ...

    async def releases(self, repo: str, limit: int) -> tuple[ListedRelease, ...]:
        """Return the newest published releases, pre-releases too, newest first.

        Parameters
        ----------
        repo
            Repository, ``owner/name``.
        limit
            Releases at most, up to 100.

        Raises
        ------
        SourceError
            Of the class that says why, see `cloister_clients.sources.errors`.
        """
        ...

    async def aclose(self) -> None:
        """Close connections; the provider is not used afterwards."""
        ...


def pinned_commit(repo: str, tag: str, *, pinned: str | None, actual: str, kept: bool) -> str:
    """Return the commit to read: the one that the tag points to, or a kept one that it left.

    Raises
    ------
    TagMoved
        When a commit is pinned and not kept, and the tag points to another one.
    """
    if pinned is None or pinned == actual:
        return actual
    if not kept:
        raise TagMoved(repo, tag, pinned=pinned, actual=actual)
    return pinned


@contextmanager
def reading(repo: str, tag: str, *, commit: str, actual: str) -> Iterator[None]:
    """Read a commit; where the tag left it, a source that no longer has it is `TagMoved`."""
    try:
        yield
    except SourceError as error:
        if commit == actual or error.transient:
            raise
        raise TagMoved(repo, tag, pinned=commit, actual=actual) from error
