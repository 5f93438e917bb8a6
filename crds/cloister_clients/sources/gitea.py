"""Releases of Gitea and Forgejo, through their REST interface (version 1).

Read are the release of a tag, the commit behind the tag, and one file at that commit.
"""

import base64
import binascii
from urllib.parse import quote

from cloister_clients.address_guard import Guard
from cloister_clients.clock import Clock
from cloister_clients.sources.errors import (
    ConfigFileNotFound,
    ConfigFileNotRegular,
    FileTooLarge,
    ReleaseNotPublished,
    RepositoryNotFound,
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

__all__ = ["GiteaProvider"]

JSON = "application/json"

_KINDS = {"dir": "directory", "symlink": "symbolic link", "submodule": "submodule"}


class GiteaProvider:
    """Reads releases from Gitea or Forgejo."""

    def __init__(
        self, settings: SourceSettings, *, guard: Guard | None = None, clock: Clock | None = None
    ) -> None:
        self._settings = settings
        self._forge = Forge(settings, f"{settings.address}/api/v1", guard=guard, clock=clock)

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
            if facts.get("draft"):
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
            query = "draft=false&limit=30"
            if not self._settings.prereleases:
                query += "&pre-release=false"
            response = await self._get(repo, f"/releases?{query}")
            if response is None:
                raise RepositoryNotFound(repo)
            listed = await response.json()
            releases = [
                each
                for each in (listed if isinstance(listed, list) else [])
                if isinstance(each, dict)
                and not each.get("draft")
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
            response = await self._get(repo, f"/releases?draft=false&limit={limit}")
            if response is None:
                raise RepositoryNotFound(repo)
            return listed_releases(await response.json())[:limit]

    async def aclose(self) -> None:
        """Close connections."""
        await self._forge.aclose()

    async def _get(self, repo: str, path: str, *, limit: int = 0) -> ForgeResponse | None:
        """Request something of a repository."""
        return await self._forge.get(repo, f"/repos/{repo}{path}", accept=JSON, limit=limit)

    async def _tag(self, repo: str, tag: str) -> ForgeResponse | None:
        """Request a tag; its slashes stay, since it ends the path."""
        return await self._get(repo, f"/tags/{quote(tag, safe='/')}")

    async def _why_no_release(
        self, repo: str, tag: str
    ) -> RepositoryNotFound | TagNotFound | ReleaseNotPublished:
        """Describe whether the repository, the tag or only its release is missing."""
        if await self._get(repo, "") is None:
            return RepositoryNotFound(repo)
        if await self._tag(repo, tag) is None:
            return TagNotFound(repo, tag)
        return ReleaseNotPublished(repo, tag)

    async def _commit_of(self, repo: str, tag: str) -> str:
        """Return the commit behind a tag; the forge has followed annotated tags."""
        response = await self._tag(repo, tag)
        if response is None:
            raise TagNotFound(repo, tag)
        commit = text(await response.object(), "commit", "sha")
        if not is_commit(commit):
            raise SourceUnavailable(f"the forge's response for the tag {tag} has no commit")
        return commit

    async def _file(self, repo: str, tag: str, commit: str) -> tuple[str, bytes]:
        """Read the first of the possible files that the commit has."""
        limit = self._settings.max_file_bytes
        for name in self._settings.file_names:
            response = await self._get(repo, f"/contents/{quote(name, safe='')}?ref={commit}")
            if response is None:
                continue
            facts = await response.json()
            # The response for a directory is the list of its entries.
            kind = "dir" if isinstance(facts, list) else text(facts, "type")
            if kind != "file":
                raise ConfigFileNotRegular(repo, tag, name, _KINDS.get(kind, "special file"))
            if integer(facts, "size") > limit:
                raise FileTooLarge(repo, tag, name, limit)
            return name, _decoded(repo, name, text(facts, "content"), integer(facts, "size"))
        raise ConfigFileNotFound(repo, tag, self._settings.file_names)


def _decoded(repo: str, name: str, content: str, size: int) -> bytes:
    """Decode a file's content and compare its length with what was announced."""
    try:
        file = base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SourceUnavailable(f"the forge sent {name} of {repo} in no known form") from error
    if len(file) != size:
        raise SourceUnavailable(f"the forge did not send the whole of {name} of {repo}")
    return file
