"""Releases of plain git repositories: a tag is a release.

Works with each server that speaks git over https or ssh, and with a directory of repositories.
Nothing is checked out: the tag is fetched without history, and one file is read from it.
"""

import asyncio
import contextlib
import hashlib
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from cachetools import LRUCache

from cloister_clients.address_guard import Guard
from cloister_clients.sources.errors import (
    ConfigFileNotFound,
    ConfigFileNotRegular,
    FileTooLarge,
    SourceError,
    SourceRefused,
    SourceUnavailable,
    TagNotFound,
)
from cloister_clients.sources.git.program import Git, Output, workplace
from cloister_clients.sources.git.remote import Remote, cleaned, explain, remote_of
from cloister_clients.sources.release import (
    ListedRelease,
    PublishedRelease,
    PublishedTag,
    check_question,
    check_repository,
    is_commit,
    is_tag,
    pinned_commit,
    reading,
)
from cloister_clients.sources.settings import SourceSettings
from cloister_crds.lifecycle.state.release_order import release_order, version_order

__all__ = ["GitProvider"]

MAX_LISTING_BYTES = 4 * 1024**2
"""Largest list of references that is read, in bytes; about 50,000 tags."""

MAX_CANDIDATES = 64
"""How many tags are fetched to find the newest."""

MAX_REMEMBERED = 1024
"""For how many repositories the newest release is remembered."""

REMOTE = "source"
"""Name of the repository's server in git's configuration. It has one, and is a promisor, because
git takes objects that a filter left out for missing ones otherwise."""

KEPT = "refs/kept"
"""Where a commit is kept that is fetched by its id."""

LAST_SECOND = 253402300799
"""The last second that a date can hold: the end of the year 9999."""

_KINDS = {"040000": "directory", "120000": "symbolic link", "160000": "submodule"}


@dataclass(frozen=True, slots=True)
class _Lookup:
    """What one lookup works with."""

    repo: str
    remote: Remote
    git: Git
    max_fetch_bytes: int

    def _explain(self, error: str, tag: str | None) -> SourceError:
        """Describe what went wrong with the repository."""
        return explain(
            error,
            repo=self.repo,
            tag=tag,
            token_sent=self.remote.token_sent,
            max_fetch_bytes=self.max_fetch_bytes,
        )

    async def fetch(self, *references: str, tag: str | None, object_filter: str) -> None:
        """Fetch references, or a commit, without history into the workplace's empty repository."""
        made = await self.git.run("init", "--quiet", "--bare", "--template=")
        if made.code != 0:
            raise SourceUnavailable(f"git could not start to work: {cleaned(made.error)}")
        output = await self._call(
            "fetch",
            "--quiet",
            "--depth=1",
            "--no-tags",
            "--no-recurse-submodules",
            "--no-write-fetch-head",
            f"--filter={object_filter}",
            "--",
            REMOTE,
            *(f"+{each}:{KEPT if is_commit(each) else each}" for each in references),
            limit=65536,
        )
        if output.code != 0:
            raise self._explain(output.error, tag)

    async def listing(self) -> bytes:
        """Query the server for its tags: a line with object id and reference for each."""
        output = await self._call(
            "ls-remote", "--quiet", "--refs", "--tags", "--", REMOTE,
            limit=MAX_LISTING_BYTES,
        )  # fmt: skip
        if output.overflow:
            raise SourceRefused(
                f"the list of tags of {self.repo} is beyond {MAX_LISTING_BYTES} bytes, too long to "
                "find the newest; name the release in spec.tag"
            )
        if output.code != 0:
            raise self._explain(output.error, None)
        return output.out

    async def _call(self, *arguments: str, limit: int) -> Output:
        """Run a command that reaches out to the repository."""
        return await self.git.run(
            *arguments,
            protocol=self.remote.protocol,
            options={
                f"remote.{REMOTE}.url": self.remote.address,
                f"remote.{REMOTE}.promisor": "true",
                **self.remote.options,
            },
            limit=limit,
        )

    async def commit_of(self, tag: str) -> str:
        """Follow a fetched tag, annotated or not, to its commit."""
        reference = f"refs/tags/{tag}^{{commit}}"
        output = await self.git.run("rev-parse", "--verify", "--quiet", "--end-of-options",
                                    reference)  # fmt: skip
        commit = output.out.decode("ascii", "replace").strip().rpartition("\n")[2]
        if output.code != 0 or not is_commit(commit):
            raise TagNotFound(
                self.repo,
                tag,
                detail=f"the tag {tag} of {self.repo} points to no commit; tag a commit",
            )
        return commit

    async def target_of(self, tag: str) -> str:
        """Query the server for what a tag points to, through tags of tags.

        Raises
        ------
        SourceError
            When there is no such tag, or the server does not respond.
        """
        reference = f"refs/tags/{tag}"
        output = await self._call(
            "ls-remote", "--quiet", "--", REMOTE, reference, f"{reference}^{{}}",
            limit=65536,
        )  # fmt: skip
        if output.code != 0:
            raise self._explain(output.error, tag)
        found: dict[str, str] = {}
        for line in output.out.decode("utf-8", "replace").splitlines():
            identity, _, name = line.partition("\t")
            found[name] = identity
        target = found.get(f"{reference}^{{}}") or found.get(reference)
        if target is None:
            raise TagNotFound(self.repo, tag)
        return target

    async def dates(self, *references: str) -> dict[str, datetime]:
        """Return the date of each fetched tag: tagger's, else committer's."""
        output = await self.git.run(
            "for-each-ref", "--format=%(creatordate:unix) %(refname)", *references, limit=1048576
        )
        found: dict[str, datetime] = {}
        for line in output.out.decode("utf-8", "replace").splitlines():
            seconds, _, reference = line.partition(" ")
            if seconds.isdecimal():
                found[reference] = _date(int(seconds))
        return found

    async def commits(self) -> dict[str, str]:
        """Return the commits that the fetched tags point to, by their names.

        Tags of what is not a commit are left out: nothing can be deployed from them.
        """
        names = "%(objecttype) %(objectname) %(*objecttype) %(*objectname) %(refname:strip=2)"
        output = await self.git.run("for-each-ref", f"--format={names}", "refs/tags", limit=1048576)
        found: dict[str, str] = {}
        for line in output.out.decode("utf-8", "replace").splitlines():
            kind, identity, pointed, target, tag = line.split(" ", 4)
            if kind == "commit":
                found[tag] = identity
            elif pointed == "commit":
                found[tag] = target
            elif pointed == "tag":
                # Tags of tags are followed one by one by this release of git.
                with contextlib.suppress(TagNotFound):
                    found[tag] = await self.commit_of(tag)
        return found

    async def committed(self, commit: str) -> datetime:
        """Return the date of a commit; the beginning of time when it has none."""
        output = await self.git.run("log", "-1", "--format=%ct", commit, "--")
        text = output.out.decode("ascii", "replace").strip()
        return _date(int(text) if text.isdecimal() else 0)


class GitProvider:
    """Reads releases with the program git."""

    def __init__(self, settings: SourceSettings, *, guard: Guard | None = None) -> None:
        self._settings = settings
        self._guard = guard or settings.guard()
        self._turn = asyncio.Semaphore(settings.fetches_at_once)
        self._version_checked = False
        self._newest: LRUCache[str, tuple[bytes, PublishedTag | None]] = LRUCache(MAX_REMEMBERED)

    async def resolve(
        self, repo: str, tag: str, *, commit: str | None = None, kept: bool = False
    ) -> PublishedRelease:
        """Read the configuration file at a tag, see `SourceProvider.resolve`."""
        check_question(repo, tag, commit)
        async with self._lookup(repo) as lookup:
            if commit is not None and kept:
                # Before anything is fetched, so that a lookup fetches one pack only.
                actual = await lookup.target_of(tag)
                if actual != commit:
                    return await self._left_by(lookup, tag, commit, actual)
            reference = f"refs/tags/{tag}"
            await lookup.fetch(reference, tag=tag, object_filter=self._filter)
            actual = await lookup.commit_of(tag)
            commit = pinned_commit(repo, tag, pinned=commit, actual=actual, kept=False)
            published = (await lookup.dates(reference)).get(reference)
            name, file = await self._file(lookup, tag, commit)
            return PublishedRelease(
                repo=repo,
                tag=tag,
                commit=commit,
                published=published or await lookup.committed(commit),
                file_name=name,
                file=file,
                tag_commit=actual,
            )

    async def _left_by(
        self, lookup: _Lookup, tag: str, commit: str, actual: str
    ) -> PublishedRelease:
        """Read a commit that a tag pointed to when it was deployed."""
        with reading(lookup.repo, tag, commit=commit, actual=actual):
            await lookup.fetch(commit, tag=None, object_filter=self._filter)
            name, file = await self._file(lookup, tag, commit)
        return PublishedRelease(
            repo=lookup.repo,
            tag=tag,
            commit=commit,
            published=await lookup.committed(commit),
            file_name=name,
            file=file,
            tag_commit=actual,
        )

    @property
    def _filter(self) -> str:
        """What is left on the server: blobs of more than one byte beyond what may be read."""
        return f"blob:limit={self._settings.max_file_bytes + 1}"

    async def latest(self, repo: str) -> PublishedTag | None:
        """Return the newest tag by its date, see `SourceProvider.latest`.

        Of more than 64 tags, only the 64 that are last in the order of versions are
        considered. While the list of tags is the same, nothing is fetched.
        """
        check_repository(repo)
        async with self._lookup(repo) as lookup:
            listing = await lookup.listing()
            digest = hashlib.sha256(listing).digest()
            known = self._newest.get(repo)
            if known is not None and known[0] == digest:
                return known[1]
            # A long list takes a second, which would block the event loop.
            candidates = await asyncio.to_thread(_candidates, listing)
            newest = await self._newest_of(lookup, candidates)
            self._newest[repo] = (digest, newest)
            return newest

    async def releases(self, repo: str, limit: int) -> tuple[ListedRelease, ...]:
        """Return the newest tags by their dates, see `SourceProvider.releases`.

        Of more than 64 tags, only the 64 that are last in the order of versions are considered.
        """
        check_repository(repo)
        async with self._lookup(repo) as lookup:
            candidates = await asyncio.to_thread(_candidates, await lookup.listing())
            if not candidates:
                return ()
            dated = await self._by_date(lookup, candidates)
            commits = await lookup.commits()
            listed = [
                ListedRelease(tag=name, published=published, commit=commits[name])
                for name, published in dated
                if name in commits
            ]
            return tuple(listed[:limit])

    async def aclose(self) -> None:
        """Drop the cache; there are no connections to close."""
        self._newest.clear()

    @asynccontextmanager
    async def _lookup(self, repo: str) -> AsyncIterator[_Lookup]:
        """Build place for one lookup, bounded in time and number."""
        settings = self._settings
        try:
            async with self._turn, asyncio.timeout(settings.timeout_seconds):
                remote = await remote_of(repo, settings, self._guard)
                with workplace(
                    safe_directory=remote.directory, ca_file=settings.ca_file, ssh=remote.ssh
                ) as place:
                    git = Git(place, max_file_bytes=settings.max_fetch_bytes)
                    if not self._version_checked:
                        await git.check_version()
                        self._version_checked = True
                    yield _Lookup(repo, remote, git, settings.max_fetch_bytes)
        except TimeoutError as error:
            raise SourceUnavailable(
                f"the git server took longer than {settings.timeout_seconds:g} seconds for {repo}",
                timed_out=True,
            ) from error

    async def _file(self, lookup: _Lookup, tag: str, commit: str) -> tuple[str, bytes]:
        """Read the first of the possible files that the commit has."""
        names, limit = self._settings.file_names, self._settings.max_file_bytes
        listed = await lookup.git.run("ls-tree", "-z", "--full-tree", commit, "--", *names)
        entries: dict[str, tuple[str, str]] = {}
        for entry in listed.out.decode("utf-8", "replace").split("\0"):
            facts, _, path = entry.partition("\t")
            if path:
                mode, _, identity = facts.split(" ")
                entries[path] = (mode, identity)
        name = next((name for name in names if name in entries), None)
        if name is None:
            raise ConfigFileNotFound(lookup.repo, tag, names)
        mode, identity = entries[name]
        if mode not in {"100644", "100755", "100664"}:
            raise ConfigFileNotRegular(lookup.repo, tag, name, _KINDS.get(mode, "special file"))
        size = await lookup.git.run("cat-file", "-s", identity)
        # No size: the filter left the blob on the server, because it is beyond the limit.
        if size.code != 0 or int(size.out) > limit:
            raise FileTooLarge(lookup.repo, tag, name, limit)
        blob = await lookup.git.run("cat-file", "blob", identity, limit=limit)
        if blob.code != 0:
            raise SourceUnavailable(f"git could not read {name}: {cleaned(blob.error)}")
        return name, blob.out

    async def _newest_of(self, lookup: _Lookup, candidates: list[str]) -> PublishedTag | None:
        """Fetch the likeliest tags and return the one with the latest date."""
        if not candidates:
            return None
        for name, published in await self._by_date(lookup, candidates):
            try:
                commit = await lookup.commit_of(name)
            except TagNotFound:
                continue
            return PublishedTag(tag=name, commit=commit, published=published)
        return None

    async def _by_date(self, lookup: _Lookup, candidates: list[str]) -> list[tuple[str, datetime]]:
        """Fetch tags, and return them with their dates, the newest first."""
        references = [f"refs/tags/{name}" for name in candidates]
        await lookup.fetch(*references, tag=None, object_filter="tree:0")
        dates = await lookup.dates(*references)
        ranked = sorted(
            (*release_order(dates[f"refs/tags/{name}"], name), name)
            for name in candidates
            if f"refs/tags/{name}" in dates
        )
        return [(name, published) for published, _, name in reversed(ranked)]


def _candidates(listing: bytes) -> list[str]:
    """Return the tags that are last in the order of versions, the last one first."""
    names = []
    for line in listing.decode("utf-8", "replace").splitlines():
        reference = line.partition("\t")[2]
        name = reference.removeprefix("refs/tags/")
        if name != reference and is_tag(name):
            names.append(name)
    return heapq.nlargest(MAX_CANDIDATES, names, key=version_order)


def _date(seconds: int) -> datetime:
    """Turn seconds into a date; what no date can hold becomes the nearest that can."""
    return datetime.fromtimestamp(min(seconds, LAST_SECOND), tz=UTC)
