"""Releases of GitHub, Gitea and Forgejo, through their REST interfaces.

Read are the release of a tag, the commit behind the tag, and one file at that commit. Of GitHub the
file is read by its content's id, so that a tag that moves in between cannot mix two commits.
"""

import base64
import binascii
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import quote

from typing_extensions import override

from cloister_clients.address_guard import Guard
from cloister_clients.clock import Clock
from cloister_clients.sources.errors import (
    ConfigFileNotFound,
    ConfigFileNotRegular,
    FileTooLarge,
    ReleaseNotPublished,
    RepositoryNotFound,
    SourceRefused,
    SourceUnavailable,
    TagNotFound,
)
from cloister_clients.sources.release import (
    ListedRelease,
    PublishedRelease,
    PublishedTag,
    check_question,
    check_repository,
    check_tag,
    is_commit,
    pinned_commit,
    reading,
)
from cloister_clients.sources.rest import (
    Forge,
    ForgeResponse,
    integer,
    listed_releases,
    moment,
    order_of,
    text,
)
from cloister_clients.sources.settings import SourceSettings

__all__ = ["GitHubProvider", "GiteaProvider"]

MAX_DEPTH = 5
"""How many annotated tags may point to one another before the commit."""
NEWEST = 30
"""Of how many releases the newest is looked for."""


class _RestProvider(ABC):
    """Reads releases from a forge; what differs between forges is abstract."""

    base: ClassVar[str] = ""
    """Path of the interface below the address of the settings."""
    accept: ClassVar[str]
    """Media type of its responses."""
    headers: ClassVar[Mapping[str, str]] = {}
    """Headers of every request."""

    def __init__(
        self, settings: SourceSettings, *, guard: Guard | None = None, clock: Clock | None = None
    ) -> None:
        self._settings = settings
        self._forge = Forge(
            settings, settings.address + self.base, guard=guard, clock=clock, headers=self.headers
        )

    async def resolve(
        self, repo: str, tag: str, *, commit: str | None = None, kept: bool = False
    ) -> PublishedRelease:
        """Read the configuration file at a tag, see `SourceProvider.resolve`."""
        check_question(repo, tag, commit)
        async with self._forge.lookup(repo):
            release = await self._get(repo, f"/releases/tags/{quote(tag, safe='')}")
            if release is None:
                raise await self._why_no_release(repo, tag)
            facts = await release.object()
            if not self._is_published(facts):
                raise ReleaseNotPublished(repo, tag, draft=True)
            actual = await self._commit_of(repo, tag)
            commit = pinned_commit(repo, tag, pinned=commit, actual=actual, kept=kept)
            with reading(repo, tag, commit=commit, actual=actual):
                name, file = await self._file(repo, tag, commit)
            return PublishedRelease(
                repo=repo,
                tag=tag,
                commit=commit,
                published=moment(facts, "published_at"),
                file_name=name,
                file=file,
                tag_commit=actual,
            )

    async def latest(self, repo: str) -> PublishedTag | None:
        """Return the newest published release, see `SourceProvider.latest`."""
        check_repository(repo)
        async with self._forge.lookup(repo):
            response = await self._get(repo, self._newest())
            if response is None:
                # GitHub reports a repository without releases so, too.
                await self._check_repository(repo)
                return None
            listed = await response.json()
            releases = [
                each
                for each in (listed if isinstance(listed, list) else [listed])
                if isinstance(each, dict)
                and self._is_published(each)
                and (self._settings.prereleases or not each.get("prerelease"))
            ]
            if not releases:
                return None
            newest = max(releases, key=order_of)
            tag = text(newest, "tag_name")
            check_tag(tag)
            return PublishedTag(
                tag=tag,
                commit=await self._commit_of(repo, tag),
                published=moment(newest, "published_at"),
            )

    async def releases(self, repo: str, limit: int) -> tuple[ListedRelease, ...]:
        """Return the newest published releases, see `SourceProvider.releases`."""
        check_repository(repo)
        async with self._forge.lookup(repo):
            response = await self._get(repo, self._list(limit))
            if response is None:
                raise RepositoryNotFound(repo)
            return listed_releases(await response.json())[:limit]

    async def aclose(self) -> None:
        """Close connections."""
        await self._forge.aclose()

    async def _get(self, repo: str, path: str, *, accept: str = "") -> ForgeResponse | None:
        """Request something of a repository."""
        return await self._forge.get(repo, f"/repos/{repo}{path}", accept=accept or self.accept)

    async def _check_repository(self, repo: str) -> None:
        """Check that a repository is there, after something of it was not."""
        if await self._get(repo, "") is None:
            raise RepositoryNotFound(repo)

    async def _why_no_release(self, repo: str, tag: str) -> TagNotFound | ReleaseNotPublished:
        """Describe whether the tag is missing or only its release."""
        await self._check_repository(repo)
        if await self._tag(repo, tag) is None:
            return TagNotFound(repo, tag)
        return ReleaseNotPublished(repo, tag)

    @abstractmethod
    def _is_published(self, release: Mapping[str, Any]) -> bool:
        """Return whether a release is more than a draft."""

    @abstractmethod
    def _newest(self) -> str:
        """Return the path of the releases that have the newest one."""

    @abstractmethod
    def _list(self, limit: int) -> str:
        """Return the path of the newest releases."""

    @abstractmethod
    async def _tag(self, repo: str, tag: str) -> ForgeResponse | None:
        """Request a tag."""

    @abstractmethod
    async def _commit_of(self, repo: str, tag: str) -> str:
        """Return the commit behind a tag, annotated or not."""

    @abstractmethod
    async def _file(self, repo: str, tag: str, commit: str) -> tuple[str, bytes]:
        """Read the first of the possible files that the commit has."""


class GitHubProvider(_RestProvider):
    """Reads releases from GitHub and GitHub Enterprise Server."""

    accept = "application/vnd.github+json"
    headers: ClassVar[Mapping[str, str]] = {"X-GitHub-Api-Version": "2022-11-28"}
    raw: ClassVar[str] = "application/vnd.github.raw+json"
    """Media type of a file's content."""
    kinds: ClassVar[Mapping[str, str]] = {
        "040000": "directory",
        "120000": "symbolic link",
        "160000": "submodule",
    }
    """What is not a file, by its mode in git."""

    @override
    def _is_published(self, release: Mapping[str, Any]) -> bool:
        return not release.get("draft") and bool(release.get("published_at"))

    @override
    def _newest(self) -> str:
        # Without pre-releases it is the one that GitHub itself calls the latest.
        return f"/releases?per_page={NEWEST}" if self._settings.prereleases else "/releases/latest"

    @override
    def _list(self, limit: int) -> str:
        return f"/releases?per_page={limit}"

    @override
    async def _tag(self, repo: str, tag: str) -> ForgeResponse | None:
        return await self._get(repo, f"/git/ref/{quote(f'tags/{tag}', safe='')}")

    @override
    async def _commit_of(self, repo: str, tag: str) -> str:
        response = await self._tag(repo, tag)
        for _ in range(MAX_DEPTH):
            if response is None:
                raise TagNotFound(repo, tag)
            target = await response.object()
            kind, identity = text(target, "object", "type"), text(target, "object", "sha")
            if not is_commit(identity):
                raise SourceUnavailable(f"the forge's response for the tag {tag} has no object id")
            if kind == "commit":
                return identity
            if kind != "tag":
                break
            response = await self._get(repo, f"/git/tags/{identity}")
        raise TagNotFound(
            repo, tag, detail=f"the tag {tag} of {repo} points to no commit; tag a commit"
        )

    @override
    async def _file(self, repo: str, tag: str, commit: str) -> tuple[str, bytes]:
        names, limit = self._settings.file_names, self._settings.max_file_bytes
        tree = await self._get(repo, f"/git/trees/{commit}")
        if tree is None:
            raise TagNotFound(repo, tag)
        listed = (await tree.object()).get("tree")
        entries = {
            each["path"]: each
            for each in (listed if isinstance(listed, list) else [])
            if isinstance(each, dict) and isinstance(each.get("path"), str)
        }
        name = next((name for name in names if name in entries), None)
        if name is None and (await tree.object()).get("truncated"):
            raise SourceRefused(
                f"the root directory of {repo} has more files than the forge lists; move some away"
            )
        if name is None:
            raise ConfigFileNotFound(repo, tag, names)
        entry = entries[name]
        mode = text(entry, "mode")
        if mode not in {"100644", "100755"}:
            raise ConfigFileNotRegular(repo, tag, name, self.kinds.get(mode, "special file"))
        if integer(entry, "size") > limit:
            raise FileTooLarge(repo, tag, name, limit)
        identity = text(entry, "sha")
        blob = await self._get(repo, f"/git/blobs/{quote(identity, safe='')}", accept=self.raw)
        if blob is None or _blob_id(blob.body) != identity:
            raise SourceUnavailable(f"the forge did not send {name} of {repo} as it is")
        return name, blob.body


class GiteaProvider(_RestProvider):
    """Reads releases from Gitea or Forgejo (version 1 of the interface)."""

    base = "/api/v1"
    accept = "application/json"
    kinds: ClassVar[Mapping[str, str]] = {
        "dir": "directory",
        "symlink": "symbolic link",
        "submodule": "submodule",
    }
    """What is not a file, by the forge's word."""

    @override
    def _is_published(self, release: Mapping[str, Any]) -> bool:
        return not release.get("draft")

    @override
    def _newest(self) -> str:
        query = f"draft=false&limit={NEWEST}"
        return f"/releases?{query}" + ("" if self._settings.prereleases else "&pre-release=false")

    @override
    def _list(self, limit: int) -> str:
        return f"/releases?draft=false&limit={limit}"

    @override
    async def _tag(self, repo: str, tag: str) -> ForgeResponse | None:
        # Its slashes stay, since it ends the path.
        return await self._get(repo, f"/tags/{quote(tag, safe='/')}")

    @override
    async def _commit_of(self, repo: str, tag: str) -> str:
        response = await self._tag(repo, tag)
        if response is None:
            raise TagNotFound(repo, tag)
        # The forge has followed annotated tags.
        commit = text(await response.object(), "commit", "sha")
        if not is_commit(commit):
            raise SourceUnavailable(f"the forge's response for the tag {tag} has no commit")
        return commit

    @override
    async def _file(self, repo: str, tag: str, commit: str) -> tuple[str, bytes]:
        limit = self._settings.max_file_bytes
        for name in self._settings.file_names:
            response = await self._get(repo, f"/contents/{quote(name, safe='')}?ref={commit}")
            if response is None:
                continue
            facts = await response.json()
            # The response for a directory is the list of its entries.
            kind = "dir" if isinstance(facts, list) else text(facts, "type")
            if kind != "file":
                raise ConfigFileNotRegular(repo, tag, name, self.kinds.get(kind, "special file"))
            if integer(facts, "size") > limit:
                raise FileTooLarge(repo, tag, name, limit)
            return name, _decoded(repo, name, text(facts, "content"), integer(facts, "size"))
        raise ConfigFileNotFound(repo, tag, self._settings.file_names)


def _blob_id(content: bytes) -> str:
    """Compute git's id of a file's content."""
    head = f"blob {len(content)}\0".encode()
    return hashlib.sha1(head + content).hexdigest()  # noqa: S324 - git's object ids are SHA-1


def _decoded(repo: str, name: str, content: str, size: int) -> bytes:
    """Decode a file's content and compare its length with what was announced."""
    try:
        file = base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SourceUnavailable(f"the forge sent {name} of {repo} in no known form") from error
    if len(file) != size:
        raise SourceUnavailable(f"the forge did not send the whole of {name} of {repo}")
    return file
