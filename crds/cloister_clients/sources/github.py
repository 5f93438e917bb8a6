"""Releases of GitHub and GitHub Enterprise Server, through their REST interface.

Read are the release of a tag, the commit behind the tag, the root directory of that commit and one
file of it by its content's id, so that a tag that moves in between cannot mix two commits.
"""

import hashlib
from urllib.parse import quote

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

__all__ = ["GitHubProvider"]

JSON = "application/vnd.github+json"
RAW = "application/vnd.github.raw+json"

VERSION = {"X-GitHub-Api-Version": "2022-11-28"}
"""Version of the interface that is used."""

MAX_DEPTH = 5
"""How many annotated tags may point to one another before the commit."""

_KINDS = {"040000": "directory", "120000": "symbolic link", "160000": "submodule"}


class GitHubProvider:
    """Reads releases from GitHub."""

    def __init__(
        self, settings: SourceSettings, *, guard: Guard | None = None, clock: Clock | None = None
    ) -> None:
        self._settings = settings
        self._forge = Forge(settings, settings.address, guard=guard, clock=clock, headers=VERSION)

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
            if facts.get("draft") or not facts.get("published_at"):
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
        """Return the newest published release, see `SourceProvider.latest`.

        Without pre-releases it is the one that GitHub itself calls the latest.
        """
        check_repository(repo)
        async with self._forge.lookup(repo):
            path = "/releases?per_page=30" if self._settings.prereleases else "/releases/latest"
            response = await self._get(repo, path)
            if response is None:
                await self._check_repository(repo)
                return None
            listed = await response.json()
            releases = [
                each
                for each in (listed if isinstance(listed, list) else [listed])
                if isinstance(each, dict) and not each.get("draft") and each.get("published_at")
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
            response = await self._get(repo, f"/releases?per_page={limit}")
            if response is None:
                raise RepositoryNotFound(repo)
            return listed_releases(await response.json())[:limit]

    async def aclose(self) -> None:
        """Close connections."""
        await self._forge.aclose()

    async def _get(
        self, repo: str, path: str, *, accept: str = JSON, limit: int = 0
    ) -> ForgeResponse | None:
        """Request something of a repository."""
        return await self._forge.get(repo, f"/repos/{repo}{path}", accept=accept, limit=limit)

    async def _check_repository(self, repo: str) -> None:
        """Check that a repository is there, after something of it was not."""
        if await self._get(repo, "") is None:
            raise RepositoryNotFound(repo)

    async def _why_no_release(self, repo: str, tag: str) -> TagNotFound | ReleaseNotPublished:
        """Describe whether the tag is missing or only its release."""
        await self._check_repository(repo)
        if await self._reference(repo, tag) is None:
            return TagNotFound(repo, tag)
        return ReleaseNotPublished(repo, tag)

    async def _reference(self, repo: str, tag: str) -> ForgeResponse | None:
        """Request a tag's reference."""
        return await self._get(repo, f"/git/ref/{quote(f'tags/{tag}', safe='')}")

    async def _commit_of(self, repo: str, tag: str) -> str:
        """Follow a tag, annotated or not, to its commit."""
        response = await self._reference(repo, tag)
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

    async def _file(self, repo: str, tag: str, commit: str) -> tuple[str, bytes]:
        """Read the first of the possible files that the commit has."""
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
            raise ConfigFileNotRegular(repo, tag, name, _KINDS.get(mode, "special file"))
        if integer(entry, "size") > limit:
            raise FileTooLarge(repo, tag, name, limit)
        identity = text(entry, "sha")
        blob = await self._get(repo, f"/git/blobs/{quote(identity, safe='')}", accept=RAW)
        if blob is None or _blob_id(blob.body) != identity:
            raise SourceUnavailable(f"the forge did not send {name} of {repo} as it is")
        return name, blob.body


def _blob_id(content: bytes) -> str:
    """Compute git's id of a file's content."""
    head = f"blob {len(content)}\0".encode()
    return hashlib.sha1(head + content).hexdigest()  # noqa: S324 - git's object ids are SHA-1
