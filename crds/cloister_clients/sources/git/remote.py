"""The address of a repository for git, with all that git must know to reach it safely.

Pure but for the look-up of the host; `GitProvider` calls it once per lookup.
"""

import base64
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from cloister_clients.address_guard import AddressRefused, Guard, HostUnknown, host_port
from cloister_clients.sources.errors import (
    RepositoryNotFound,
    SourceRefused,
    SourceUnavailable,
)
from cloister_clients.sources.names import check_repository
from cloister_clients.sources.settings import SourceSettings

__all__ = ["Remote", "remote_of"]


@dataclass(frozen=True, slots=True)
class Remote:
    """Where git fetches from, and how."""

    address: str
    """Address or path, as the argument of git."""
    protocol: str
    """The one protocol that git may speak."""
    options: dict[str, str] = field(default_factory=dict, repr=False)
    """Configuration of each call that reaches out; may hold the token."""
    ssh: tuple[str, ...] = ()
    """Command of ssh, to which git adds the host and its own command; empty for other protocols."""
    directory: Path | None = None
    """Repository on this machine; None when it is on a server."""
    token_sent: bool = False
    """Whether credentials of the installation go along."""


async def remote_of(repo: str, settings: SourceSettings, guard: Guard) -> Remote:
    """Find out how a repository is reached.

    Parameters
    ----------
    repo
        Repository, ``owner/name``.
    settings
        Settings of kind git.
    guard
        Which hosts may be called.

    Raises
    ------
    NameInvalid
        When the repository's name is invalid.
    RepositoryNotFound
        When the base is a directory without this repository.
    SourceRefused
        When the guard refuses the host or its scheme.
    SourceUnavailable
        When the host cannot be resolved or the token not be read.
    """
    owner, name = check_repository(repo)
    if settings.base.startswith("/"):
        return _local(repo, Path(settings.base), owner, name)
    url = httpx.URL(settings.address)
    host, port = host_port(url)
    try:
        if url.scheme != "ssh":
            guard.check_scheme(url)
        addresses = await guard.addresses(host, port)
    except AddressRefused as error:
        raise SourceRefused(str(error)) from error
    except HostUnknown as error:
        raise SourceUnavailable(str(error)) from error
    address = f"{settings.address}/{owner}/{name}{settings.url_suffix}"
    if url.scheme == "ssh":
        return Remote(address, "ssh", ssh=_ssh(settings, host, port, addresses[0]))
    # git hands this to its HTTP library, which then queries no name server: the address that was
    # checked is the one that is called.
    pinned = ",".join(f"[{item}]" if ":" in item else item for item in addresses)
    bare = f"[{host}]" if ":" in host else host
    options = {"http.curloptResolve": f"{bare}:{port}:{pinned}"}
    token = _token(settings)
    if token is not None:
        pair = base64.b64encode(f"{settings.username}:{token}".encode()).decode()
        options[f"http.{settings.address}/.extraHeader"] = f"Authorization: Basic {pair}"
    return Remote(address, url.scheme, options=options, token_sent=token is not None)


def _token(settings: SourceSettings) -> str | None:
    """Read the token."""
    try:
        return settings.read_token()
    except (OSError, UnicodeError) as error:
        raise SourceUnavailable("the token of the git server could not be read") from error


def _local(repo: str, base: Path, owner: str, name: str) -> Remote:
    """Find a repository below a directory."""
    for candidate in (base / owner / f"{name}.git", base / owner / name):
        if not candidate.is_dir():
            continue
        real = candidate.resolve()
        if not real.is_relative_to(base.resolve()):
            raise SourceRefused(f"{repo} leads out of the directory of repositories")
        inner = real / ".git"
        return Remote(_reader(real), "ext", directory=inner if inner.is_dir() else real)
    raise RepositoryNotFound(repo)


def _reader(repository: Path) -> str:
    """Return the address of a program that reads a directory, gitremote-helpers(1) `ext`.

    A path alone would have git start the same program by a shell, which an image need not have.
    """
    escaped = str(repository).replace("%", "%%").replace(" ", "% ")
    return f"ext::git-upload-pack {escaped}"


def _ssh(settings: SourceSettings, host: str, port: int, address: str) -> tuple[str, ...]:
    """Build the command of ssh: it calls the checked address and reads no configuration."""
    options = {
        "BatchMode": "yes",
        "CheckHostIP": "no",
        "ClearAllForwardings": "yes",
        "ConnectTimeout": str(max(1, int(settings.timeout_seconds))),
        "GlobalKnownHostsFile": "/dev/null",
        "HostKeyAlias": host if port == 22 else f"[{host}]:{port}",  # noqa: PLR2004 - RFC 4253
        "HostName": address,
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "IdentityFile": str(settings.ssh_key_file or "none"),
        "PermitLocalCommand": "no",
        "ProxyCommand": "none",
        "StrictHostKeyChecking": "yes",
        "UpdateHostKeys": "no",
        "UserKnownHostsFile": str(settings.known_hosts_file),
    }
    words = ["ssh", "-F", "/dev/null", "-a", "-x"]
    for key, value in options.items():
        words += ["-o", f"{key}={value}"]
    return tuple(words)
