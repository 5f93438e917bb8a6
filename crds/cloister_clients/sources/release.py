"""Releases, and the names of repositories, tags and commits."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from cloister_clients.sources.errors import NameInvalid, SourceError, TagMoved

__all__ = [
    "ListedRelease",
    "PublishedRelease",
    "PublishedTag",
    "SourceProvider",
    "check_commit",
    "check_question",
    "check_repository",
    "check_tag",
    "is_commit",
    "is_tag",
    "pinned_commit",
    "reading",
]

_PART = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9_-])?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//")
_MAX_TAG_BYTES = 200


def check_repository(repo: str) -> tuple[str, str]:
    """Parse a repository's name.

    Parameters
    ----------
    repo
        Name of the form ``owner/name``.

    Raises
    ------
    NameInvalid
        When it has not two parts, or a part that could be read as an option, as a way up the
        directory tree or as something else than a name.
    """
    owner, slash, name = repo.partition("/")
    if not slash or not _PART.fullmatch(owner) or not _PART.fullmatch(name):
        raise NameInvalid(
            f"{repo[:200]!r} is not a repository; write owner/name with letters, digits, '.', '_' "
            "and '-' only"
        )
    if name.endswith((".git", ".lock")):
        raise NameInvalid(f"{repo!r} is not a repository; write owner/name without the ending .git")
    return owner, name


def check_tag(tag: str) -> str:
    """Check the name of a tag by the rules of git for the name of a reference.

    The rules are those of the page git-check-ref-format(1) for ``refs/tags/<tag>``, and a length
    that fits a reference file.

    Raises
    ------
    NameInvalid
        When git would not take the name, or it begins with a dash.
    """
    parts = tag.split("/")
    wrong = (
        not tag
        or len(tag.encode("utf-8", "surrogatepass")) > _MAX_TAG_BYTES
        or tag.startswith("-")
        or tag.endswith(".")
        or tag == "@"
        or _FORBIDDEN.search(tag) is not None
        or any(not part or part.startswith(".") or part.endswith(".lock") for part in parts)
        or any("\ud800" <= character <= "\udfff" for character in tag)
    )
    if wrong:
        raise NameInvalid(
            f"{tag[:_MAX_TAG_BYTES]!r} is not a tag name; write the tag as the repository lists "
            "it, such as v1.2.3"
        )
    return tag


def is_tag(name: str) -> bool:
    """Return whether a listed name can be asked for."""
    try:
        check_tag(name)
    except NameInvalid:
        return False
    return True


def is_commit(text: str) -> bool:
    """Return whether a text is a full commit id: 40 lower-case hexadecimal digits."""
    return _COMMIT.fullmatch(text) is not None


def check_commit(commit: str) -> str:
    """Check a pinned commit.

    Raises
    ------
    NameInvalid
        When it is not 40 lower-case hexadecimal digits.
    """
    if not is_commit(commit):
        raise NameInvalid(
            f"{commit[:80]!r} is not a commit; write its 40 hexadecimal digits in lower case"
        )
    return commit


def check_question(repo: str, tag: str, commit: str | None) -> None:
    """Check all that identifies a release.

    Raises
    ------
    NameInvalid
        When repository, tag or commit has a name that can not be.
    """
    check_repository(repo)
    check_tag(tag)
    if commit is not None:
        check_commit(commit)


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
    """Commit that the tag points to; None if the list does not say."""


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
