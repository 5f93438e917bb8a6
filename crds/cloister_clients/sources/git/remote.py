"""The address of a repository for git, how to reach it safely, and git's errors."""

import base64
import re
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from cloister_clients.address_guard import AddressRefused, Guard, HostUnknown, host_port
from cloister_clients.sources.errors import (
    RateLimited,
    RepositoryNotFound,
    SourceError,
    SourceRefused,
    SourceUnauthorized,
    SourceUnavailable,
    TagNotFound,
)
from cloister_clients.sources.release import check_repository
from cloister_clients.sources.settings import SourceSettings

__all__ = ["Remote", "cleaned", "explain", "remote_of"]

_TAG_MISSING = re.compile(r"couldn't find remote ref", re.IGNORECASE)
_LOGIN = re.compile(r"could not read Username|Authentication failed|returned error: 401")
_REPOSITORY_MISSING = re.compile(
    r"repository '.*' not found|does not appear to be a git repository|not a git repository"
    r"|Repository not found|could not read Username|Authentication failed"
    r"|returned error: (401|403|404)|repository '.*' does not exist",
    re.IGNORECASE,
)
_RENEW = (
    "the git server refused the installation's own key or token; an administrator must renew it"
)
_MEANINGS: tuple[tuple[re.Pattern[str], type[SourceRefused | SourceUnavailable], str], ...] = (
    (
        re.compile(r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED"),
        SourceRefused,
        (
            "the git server's host key is not the one in knownHostsFile; "
            "an administrator must check and enter it"
        ),
    ),
    (re.compile(r"Permission denied \(|Load key|no such identity"), SourceUnauthorized, _RENEW),
    (
        re.compile(r"returned error: 429"),
        RateLimited,
        "the git server wants fewer requests; it is retried later",
    ),
    (
        re.compile(r"mismatched algorithms|unknown object format|hash algorithm"),
        SourceRefused,
        "{repo} is a repository with SHA-256 objects, which are not read; use one with SHA-1",
    ),
    (
        re.compile(r"transport '.*' not allowed|dumb http transport|is this a git repository"),
        SourceRefused,
        "the server of {repo} does not speak a git protocol that is allowed here: {said}",
    ),
    (
        re.compile(r"returned error: 30[12378]|redirect", re.IGNORECASE),
        SourceRefused,
        (
            "the git server answers for {repo} with a redirect, which is not followed; "
            "use the repository's present name or correct the base"
        ),
    ),
    (
        re.compile(r"not our ref|unadvertised object"),
        SourceRefused,
        "the server of {repo} does not return that commit by its id",
    ),
    (
        re.compile(r"File too large|signal 25", re.IGNORECASE),
        SourceRefused,
        (
            "{repo} is too large to be fetched: without its history it has more than {most} bytes; "
            "make it smaller, or have an administrator raise sources.maxFetchBytes"
        ),
    ),
    (
        re.compile(r"Out of memory|malloc failed|mmap failed", re.IGNORECASE),
        SourceRefused,
        "{repo} has objects that take more memory than git is given; make its files smaller",
    ),
)
"""What else git can say -> what it means; the first that fits counts."""

_FILTERED = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_FATAL = re.compile(r"^(?:fatal|error|remote): ?(.*)$", re.MULTILINE)


def cleaned(text: str) -> str:
    """Reduce error output to one line that fits into a message.

    Parameters
    ----------
    text
        Error output of git, parts of which the server chose.
    """
    found = _FATAL.findall(text)
    line = found[-1] if found else text.strip().rpartition("\n")[2]
    return _FILTERED.sub(" ", line).strip()[:300] or "git said nothing"


def explain(
    error: str, *, repo: str, tag: str | None, token_sent: bool, max_fetch_bytes: int
) -> SourceError:
    """Describe what went wrong with a repository on a server.

    Parameters
    ----------
    repo
        Repository, ``owner/name``.
    tag
        Tag that was requested; None when all were.
    max_fetch_bytes
        Largest pack that may be fetched, in bytes.
    """
    if tag is not None and _TAG_MISSING.search(error):
        return TagNotFound(repo, tag)
    if token_sent and _LOGIN.search(error):
        return SourceUnauthorized(_RENEW)
    if _REPOSITORY_MISSING.search(error):
        return RepositoryNotFound(repo)
    for pattern, kind, message in _MEANINGS:
        if pattern.search(error):
            said = cleaned(error)
            return kind(message.format(repo=repo, said=said, most=max_fetch_bytes))
    return SourceUnavailable(f"the git server did not respond for {repo}: {cleaned(error)}")


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

    A mere path would have git start the same program by a shell, which an image need not have.
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
