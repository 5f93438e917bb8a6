"""What can go wrong between a repository and its configuration file.

    SourceError
    ├── RepositoryNotFound       terminal   not there, or private
    ├── TagNotFound              terminal   the tag is not there
    ├── ReleaseNotPublished      terminal   the tag is there, a published release is not
    ├── ConfigFileNotFound       terminal   none of the names at the tag
    ├── ConfigFileNotRegular     terminal   a symbolic link, directory or submodule
    ├── FileTooLarge             terminal   larger than may be deployed
    ├── TagMoved                 terminal   the tag left the commit that was pinned
    ├── NameInvalid              terminal   no owner/name, or no name of a tag
    ├── SourceRefused            terminal   the guard, or a protocol that is not spoken
    └── SourceUnavailable        transient  the server did not respond as it should
        ├── RateLimited          transient  too many requests; retry_after says until when
        └── SourceUnauthorized   transient  the installation's own credentials were refused

Every message is for the user who made the request; it holds no token and no output of a server
beyond one cleaned line.
"""

# ruff: noqa: N818 - the names say what is wrong; they are the words of conditions too

from typing import ClassVar

__all__ = [
    "ConfigFileNotFound",
    "ConfigFileNotRegular",
    "FileTooLarge",
    "NameInvalid",
    "RateLimited",
    "ReleaseNotPublished",
    "RepositoryNotFound",
    "SourceError",
    "SourceRefused",
    "SourceUnauthorized",
    "SourceUnavailable",
    "TagMoved",
    "TagNotFound",
]


class SourceError(Exception):
    """A release could not be read."""

    reason: ClassVar[str] = "SourceError"
    """Stable CamelCase word for conditions and programs."""
    transient: ClassVar[bool] = False
    """True: asking again later may succeed. False: the request must change."""

    @property
    def message(self) -> str:
        """Sentence for people: what is wrong and what to do."""
        return str(self)


class RepositoryNotFound(SourceError):
    """The repository does not exist, or is not to be seen with the credentials there are."""

    reason = "RepositoryNotFound"

    def __init__(self, repo: str) -> None:
        super().__init__(
            f"the repository {repo} does not exist or is private; "
            "check the spelling owner/name and make the repository public"
        )


class TagNotFound(SourceError):
    """The repository has no such tag, or the tag is not one of a commit."""

    reason = "TagNotFound"

    def __init__(self, repo: str, tag: str, *, detail: str = "") -> None:
        super().__init__(
            detail
            or f"the repository {repo} has no tag {tag}; push the tag or choose another release"
        )


class ReleaseNotPublished(SourceError):
    """The tag exists, but no release of it is published."""

    reason = "ReleaseNotPublished"

    def __init__(self, repo: str, tag: str, *, draft: bool = False) -> None:
        state = "has only a draft of a release" if draft else "has no published release"
        super().__init__(f"the tag {tag} of {repo} {state}; publish a release for this tag")


class ConfigFileNotFound(SourceError):
    """None of the names of a configuration file is there at the tag."""

    reason = "ConfigFileNotFound"

    def __init__(self, repo: str, tag: str, names: tuple[str, ...]) -> None:
        super().__init__(
            f"{repo} has no {' or '.join(names)} in its root directory at the tag {tag}; "
            "add the file and publish a new release"
        )
        self.names = names
        """The names that were tried, in order."""


class ConfigFileNotRegular(SourceError):
    """The name of the configuration file belongs to something that is not a file."""

    reason = "ConfigFileNotRegular"

    def __init__(self, repo: str, tag: str, name: str, kind: str) -> None:
        super().__init__(
            f"{name} of {repo} at the tag {tag} is a {kind}; "
            "only a regular file is read, so commit the file itself"
        )


class FileTooLarge(SourceError):
    """The configuration file is larger than what may be deployed."""

    reason = "ConfigFileTooLarge"

    def __init__(self, repo: str, tag: str, name: str, limit: int) -> None:
        super().__init__(
            f"{name} of {repo} at the tag {tag} is larger than {limit} bytes; make it smaller"
        )


class TagMoved(SourceError):
    """The tag points to another commit than the one that was pinned."""

    reason = "TagMoved"

    def __init__(self, repo: str, tag: str, *, pinned: str, actual: str) -> None:
        super().__init__(
            f"the tag {tag} of {repo} points to commit {actual}, not to the pinned commit "
            f"{pinned}; check who moved the tag, then set spec.commit to the commit that you have "
            "checked or use another release"
        )
        self.pinned = pinned
        """Commit that was requested."""
        self.actual = actual
        """Commit that the tag points to now."""


class NameInvalid(SourceError):
    """A repository or a tag has a name that can not be."""

    reason = "NameInvalid"


class SourceRefused(SourceError):
    """The guard or the fixed list of protocols keeps the source from being called."""

    reason = "SourceRefused"


class SourceUnavailable(SourceError):
    """The source did not respond, or not as it should; a later attempt may succeed."""

    reason = "SourceUnavailable"
    transient = True

    def __init__(
        self, message: str, *, retry_after: float | None = None, timed_out: bool = False
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds to wait as the source requested; None when it did not."""
        self.timed_out = timed_out
        """Whether it did not respond in time."""


class RateLimited(SourceUnavailable):
    """The source wants fewer requests."""

    reason = "SourceRateLimited"


class SourceUnauthorized(SourceUnavailable):
    """The source refused the installation's own token or key; an administrator can change it."""

    reason = "SourceUnauthorized"
