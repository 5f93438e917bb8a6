"""Where repositories live: the administrator's settings for sources."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

import httpx
from pydantic import Field, StringConstraints, model_validator

from cloister_clients.address_guard import Guard
from cloister_clients.settings import SettingsSection

__all__ = ["DEFAULT_FILE_NAME", "SourceKind", "SourceSettings"]

DEFAULT_FILE_NAME = "service-config.yml"
"""Name of the configuration file (spec 40.1)."""

FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$")]
"""Name of a file in the root directory of a repository."""


class SourceKind(StrEnum):
    """Which protocol is spoken."""

    GIT = "git"
    """Plain git under a base; a tag is a release."""
    GITHUB = "github"
    """The REST interface of GitHub or GitHub Enterprise Server."""
    GITEA = "gitea"
    """The REST interface of Gitea or Forgejo."""


class SourceSettings(SettingsSection):
    """One place where the repositories of the installation live."""

    kind: SourceKind
    """Which protocol is spoken."""
    base: str = ""
    """Where repositories lie. git: an https, http or ssh address or an absolute directory;
    github: address of the interface, default ``https://api.github.com``, on an Enterprise Server
    ``https://HOST/api/v3``; gitea: address of the server without ``/api/v1``."""
    url_suffix: str = Field(default=".git", pattern=r"^(|\.git)$")
    """git over a network: what follows ``owner/name`` in an address, ``.git`` or nothing."""
    token_file: Path | None = None
    """File with the token, read again for each request so that it may be replaced. None: no token.
    git over https sends it as the password of `username`."""
    username: str = Field(default="x-access-token", min_length=1, pattern=r"^[^:\x00-\x1f]*$")
    """git over https: user name that belongs to the token."""
    ssh_key_file: Path | None = None
    """git over ssh: private key. None: only servers that require none."""
    known_hosts_file: Path | None = None
    """git over ssh: the server's public keys in OpenSSH's form; required for ssh."""
    ca_file: Path | None = None
    """PEM file with the only certificate authorities to trust. None: the public ones."""
    file_names: tuple[FileName, ...] = Field(default=(DEFAULT_FILE_NAME,), min_length=1)
    """Names of the configuration file in the root directory; the first that exists is read."""
    max_file_bytes: int = Field(default=262144, ge=1, le=1048576)
    """Largest configuration file, in bytes."""
    max_fetch_bytes: int = Field(default=67108864, ge=1048576)
    """git: largest pack that is fetched for one lookup, in bytes: the objects of one commit without
    files larger than `max_file_bytes`, where the server can leave these out."""
    timeout_seconds: float = Field(default=60.0, gt=0, le=600)
    """Longest time for one lookup, with all the requests it needs, in seconds."""
    concurrency: int = Field(default=8, ge=1, le=64)
    """git: how many lookups run concurrently, while `max_disk_bytes` suffices."""
    max_disk_bytes: int = Field(default=1073741824, ge=2097152)
    """git: how much all lookups together may write to the temporary directory, in bytes. Each may
    write twice `max_fetch_bytes`: the pack and its index."""
    prereleases: bool = False
    """github, gitea: whether a pre-release may be the latest release. A pre-release can always be
    deployed by its tag."""
    allow_private: tuple[str, ...] = ()
    """Hosts, ``host`` or ``host:port``, that may have private addresses."""
    plain_http: tuple[str, ...] = ()
    """Hosts, ``host`` or ``host:port``, that may be called without TLS."""

    @model_validator(mode="after")
    def _one_fetch_fits(self) -> Self:
        """Check that the disk suffices for one lookup."""
        if self.max_disk_bytes < 2 * self.max_fetch_bytes:
            raise ValueError(
                f"maxDiskBytes is {self.max_disk_bytes}, and one fetch may write twice "
                f"maxFetchBytes: raise it to {2 * self.max_fetch_bytes}, or lower maxFetchBytes"
            )
        return self

    @model_validator(mode="after")
    def _base_fits(self) -> Self:
        """Check that the base is one that this kind can use."""
        try:
            url = httpx.URL(self.address)
        except httpx.InvalidURL as error:
            raise ValueError(f"base {self.base!r} is not an address: {error}") from error
        if self.kind is SourceKind.GIT and self.base.startswith("/"):
            return self
        schemes = {"https", "http", "ssh"} if self.kind is SourceKind.GIT else {"https", "http"}
        if url.scheme not in schemes or not url.host:
            raise ValueError(
                f"base {self.base!r} does not fit kind {self.kind}: write an address with "
                + ", ".join(sorted(schemes))
                + (", or an absolute directory" if self.kind is SourceKind.GIT else "")
            )
        if url.password or (url.username and url.scheme != "ssh"):
            raise ValueError("base holds credentials; put the token into tokenFile")
        if url.query or url.fragment:
            raise ValueError("base has a query or a fragment; write only the address")
        if url.scheme == "ssh" and self.known_hosts_file is None:
            raise ValueError("base is an ssh address, so knownHostsFile is needed")
        return self

    @property
    def ignores_case(self) -> bool:
        """Whether names of repositories are compared without case; a git server may tell them."""
        return self.kind is not SourceKind.GIT

    @property
    def fetches_at_once(self) -> int:
        """How many lookups git runs concurrently."""
        return min(self.concurrency, self.max_disk_bytes // (2 * self.max_fetch_bytes))

    @property
    def address(self) -> str:
        """The base without a slash at its end, with the default of the kind."""
        if not self.base and self.kind is SourceKind.GITHUB:
            return "https://api.github.com"
        return self.base.rstrip("/")

    def guard(self) -> Guard:
        """Build the guard of these settings."""
        return Guard(
            allow_private=frozenset(self.allow_private), plain_http=frozenset(self.plain_http)
        )

    def read_token(self) -> str | None:
        """Read the token; None when no file is set.

        Raises
        ------
        OSError
            When the file cannot be read.
        """
        if self.token_file is None:
            return None
        return self.token_file.read_text(encoding="utf-8").strip() or None
