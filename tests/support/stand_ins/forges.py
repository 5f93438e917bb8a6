"""Stand-ins of the REST interfaces of GitHub and Gitea, on a socket.

Repositories are real ones (`tests.support.servers.git`): tags, commits, trees and files are read
from them with git. Releases, privacy and limits are kept here, since git has none. The responses
have the format of GitHub's API of 2022-11-28 and of Gitea's version 1.
"""

import base64
import contextlib
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any, TypeVar

from typing_extensions import override

from tests.support.servers.git import Repository
from tests.support.stand_ins.http_server import HttpServer, Reply, Request, serve

__all__ = ["ForgeStandIn", "GitHubStandIn", "GiteaStandIn", "forge"]

Kind = TypeVar("Kind", bound="ForgeStandIn")


@dataclass
class ForgeStandIn(ABC):
    """Base of both forges."""

    root: Path
    """Directory of repositories, ``owner/name.git``."""
    releases: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Repository -> its releases."""
    token: str | None = None
    """Token required from every request; None = none."""
    fault: Reply | None = None
    """Response to every request; None = the usual ones."""
    served: HttpServer | None = None
    """The server; None before it runs."""

    @property
    def base(self) -> str:
        """Base address for the settings."""
        assert self.served is not None
        return self.served.base

    @property
    def requests(self) -> list[Request]:
        """Received requests, in order."""
        assert self.served is not None
        return self.served.requests

    def publish(
        self,
        repo: str,
        tag: str,
        when: str = "2026-01-02T03:04:05Z",
        *,
        draft: bool = False,
        prerelease: bool = False,
    ) -> None:
        """Publish a release of a tag, or a draft of one."""
        release = {
            "tag_name": tag,
            "draft": draft,
            "prerelease": prerelease,
            "published_at": None if draft else when,
        }
        self.releases.setdefault(repo, []).append(release)

    def respond(self, request: Request) -> Reply:
        """Return the response to a request; 304 where a condition allows it."""
        if self.fault is not None:
            return self.fault
        if (
            self.token is not None
            and request.headers.get("authorization") != f"Bearer {self.token}"
        ):
            return _json(401, {"message": "Bad credentials"})
        reply = self.route(request)
        if reply.status != 200:
            return reply
        etag = f'"{hashlib.sha256(reply.body).hexdigest()}"'
        if request.headers.get("if-none-match") == etag:
            return Reply(304, headers={"ETag": etag})
        return Reply(200, reply.body, {**reply.headers, "ETag": etag})

    @abstractmethod
    def route(self, request: Request) -> Reply:
        """Return the response for a path, in which the two forges differ."""

    def repository(self, repo: str) -> Repository | None:
        """Find a repository."""
        path = self.root / f"{repo}.git"
        return Repository(path) if path.is_dir() else None

    def release(self, repo: str, tag: str) -> Reply:
        """Return the release of a tag."""
        for each in self.releases.get(repo, []):
            if each["tag_name"] == tag:
                return _json(200, each)
        return _missing()


class GitHubStandIn(ForgeStandIn):
    """Stand-in of GitHub."""

    @override
    def route(self, request: Request) -> Reply:
        """Return GitHub's response."""
        assert request.headers["x-github-api-version"] == "2022-11-28"
        start, owner, name, *rest = request.parts
        repository = self.repository(f"{owner}/{name}")
        if start != "repos" or repository is None:
            return _missing()
        match rest:
            case []:
                reply = _json(200, {"full_name": f"{owner}/{name}"})
            case ["releases", "tags", tag]:
                reply = self.release(f"{owner}/{name}", tag)
            case ["releases", "latest"]:
                reply = self._latest(f"{owner}/{name}")
            case ["releases"]:
                reply = _json(200, self.releases.get(f"{owner}/{name}", []))
            case ["git", "ref", reference]:
                reply = _github_object(
                    repository, f"refs/{reference}", {"ref": f"refs/{reference}"}
                )
            case ["git", "tags", identity]:
                reply = _github_tag(repository, identity)
            case ["git", "trees", identity] if _object_id(repository, f"{identity}^{{tree}}"):
                reply = _json(200, {"sha": identity, "tree": _tree(repository, identity)})
            case ["git", "blobs", identity]:
                assert request.headers["accept"] == "application/vnd.github.raw+json"
                reply = Reply(200, _blob(repository, identity))
            case _:
                reply = _missing()
        return reply

    def _latest(self, repo: str) -> Reply:
        """Return the newest release that is neither draft nor pre-release."""
        found = [
            each
            for each in self.releases.get(repo, [])
            if not each["draft"] and not each["prerelease"]
        ]
        if not found:
            return _missing()
        return _json(200, max(found, key=lambda each: str(each["published_at"])))


class GiteaStandIn(ForgeStandIn):
    """Stand-in of Gitea and Forgejo."""

    @override
    def route(self, request: Request) -> Reply:
        """Return Gitea's response."""
        *prefix, start, owner, name = request.parts[:5]
        rest = request.parts[5:]
        repository = self.repository(f"{owner}/{name}")
        if prefix != ["api", "v1"] or start != "repos" or repository is None:
            return _missing()
        match rest:
            case []:
                reply = _json(200, {"full_name": f"{owner}/{name}"})
            case ["releases", "tags", tag]:
                reply = self.release(f"{owner}/{name}", tag)
            case ["releases"]:
                reply = self._listed(f"{owner}/{name}", request)
            case ["tags", *parts]:
                reply = _gitea_tag(repository, "/".join(parts))
            case ["contents", path] if _object_id(
                repository, f"{request.parameters['ref'][0]}^{{tree}}"
            ):
                reply = _gitea_content(repository, path, request.parameters["ref"][0])
            case _:
                reply = _missing()
        return reply

    def _listed(self, repo: str, request: Request) -> Reply:
        """Return the list of releases, filtered by the query."""
        listed = self.releases.get(repo, [])
        for parameter, key in (("draft", "draft"), ("pre-release", "prerelease")):
            for wanted in request.parameters.get(parameter, []):
                listed = [each for each in listed if each[key] == (wanted == "true")]
        return _json(200, listed)


def _json(status: int, document: Any) -> Reply:
    """Return a JSON response."""
    content = json.dumps(document).encode()
    return Reply(status, content, {"Content-Type": "application/json"})


def _missing() -> Reply:
    """Return 404, also for what the client may not see."""
    return _json(404, {"message": "Not Found"})


def _object_id(repository: Repository, name: str) -> str | None:
    """Return the object id of a name."""
    try:
        return repository.git("rev-parse", "--verify", "--quiet", name)
    except CalledProcessError:
        return None


def _github_object(repository: Repository, name: str, more: dict[str, Any]) -> Reply:
    """Return the object of a reference."""
    identity = _object_id(repository, name)
    if identity is None:
        return _missing()
    kind = repository.git("cat-file", "-t", identity)
    return _json(200, {**more, "object": {"type": kind, "sha": identity}})


def _github_tag(repository: Repository, identity: str) -> Reply:
    """Return the object of an annotated tag."""
    head = repository.git("cat-file", "-p", identity).splitlines()
    target, kind = head[0].split(" ")[1], head[1].split(" ")[1]
    return _json(200, {"sha": identity, "object": {"type": kind, "sha": target}})


def _tree(repository: Repository, identity: str) -> list[dict[str, Any]]:
    """List the root directory of a commit."""
    entries = []
    for line in repository.git("ls-tree", "-l", identity).splitlines():
        facts, _, path = line.partition("\t")
        mode, kind, sha, size = facts.split()
        entry: dict[str, Any] = {"path": path, "mode": mode, "type": kind, "sha": sha}
        if size != "-":
            entry["size"] = int(size)
        entries.append(entry)
    return entries


def _blob(repository: Repository, identity: str) -> bytes:
    """Return the content of a file."""
    return repository.raw("cat-file", "blob", identity)


def _gitea_tag(repository: Repository, tag: str) -> Reply:
    """Return a tag with the commit behind it."""
    commit = _object_id(repository, f"refs/tags/{tag}^{{commit}}")
    if commit is None:
        return _missing()
    return _json(200, {"name": tag, "commit": {"sha": commit}})


def _gitea_content(repository: Repository, path: str, commit: str) -> Reply:
    """Return one file of a commit."""
    entry = next((each for each in _tree(repository, commit) if each["path"] == path), None)
    if entry is None:
        return _missing()
    if entry["type"] == "tree":
        return _json(200, [])
    kinds = {"120000": "symlink", "160000": "submodule"}
    kind = kinds.get(entry["mode"], "file")
    facts: dict[str, Any] = {"name": path, "type": kind, "sha": entry["sha"], "content": None}
    if kind == "file":
        content = _blob(repository, entry["sha"])
        facts |= {"size": len(content), "encoding": "base64"}
        facts["content"] = base64.b64encode(content).decode()
    return _json(200, facts)


@contextlib.contextmanager
def forge(stand_in: Kind) -> Iterator[Kind]:
    """Run a stand-in until the block ends."""
    with serve(stand_in.respond) as served:
        stand_in.served = served
        yield stand_in
