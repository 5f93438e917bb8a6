"""Turns what git says on its error output into one of our errors.

The environment of `Git` fixes the language, so the sentences are stable; each line below is
pinned by a test against the real program.
"""

import re

from cloister_clients.sources.errors import (
    RateLimited,
    RepositoryNotFound,
    SourceError,
    SourceRefused,
    SourceUnauthorized,
    SourceUnavailable,
    TagNotFound,
)

__all__ = ["cleaned", "explain"]

_TAG_MISSING = re.compile(r"couldn't find remote ref", re.IGNORECASE)
_LOGIN = re.compile(r"could not read Username|Authentication failed|returned error: 401")
_REPOSITORY_MISSING = re.compile(
    r"repository '.*' not found|does not appear to be a git repository|not a git repository"
    r"|Repository not found|could not read Username|Authentication failed"
    r"|returned error: (401|403|404)|repository '.*' does not exist",
    re.IGNORECASE,
)
_RENEW = (
    "the git server refused the installation's own key or token; an administrator has to renew it"
)
_MEANINGS: tuple[tuple[re.Pattern[str], type[SourceRefused | SourceUnavailable], str], ...] = (
    (
        re.compile(r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED"),
        SourceRefused,
        (
            "the git server's host key is not the one in knownHostsFile; "
            "an administrator has to check and enter it"
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
    error
        Error output of git.
    repo
        Repository, ``owner/name``.
    tag
        Tag that was requested; None when all were.
    token_sent
        Whether credentials of the installation went along.
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
