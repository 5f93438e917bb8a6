"""Names of repositories, tags and commits: what is one, before anything is called with it."""

import re

from cloister_clients.sources.errors import NameInvalid

__all__ = ["check_commit", "check_question", "check_repository", "check_tag", "is_commit", "is_tag"]

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

    Returns
    -------
    tuple
        Owner and name.

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
