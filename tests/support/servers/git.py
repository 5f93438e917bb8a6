"""Real git repositories, and git's own HTTP server behind a small one in Python.

`Repositories` makes repositories with the program git; `git_server` serves them over HTTP through
``git http-backend``, as a real server does, on a free port of the loopback.
"""

import base64
import contextlib
import os
import ssl
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dev.demo.git_server import respond
from tests.support.stand_ins.http_server import HttpServer, Reply, Request, serve

__all__ = ["GitServer", "Repositories", "Repository", "git_server"]


@dataclass
class Repository:
    """One bare repository, written to with plumbing commands only."""

    path: Path
    """The bare repository."""

    def git(self, *arguments: str, data: bytes = b"", when: int = 1_700_000_000) -> str:
        """Run git in the repository and return its output, stripped."""
        return self.raw(*arguments, data=data, when=when).decode().strip()

    def raw(self, *arguments: str, data: bytes = b"", when: int = 1_700_000_000) -> bytes:
        """Run git in the repository, with a fixed author and time (in seconds)."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.path),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "a",
            "GIT_AUTHOR_EMAIL": "a@example.test",
            "GIT_COMMITTER_NAME": "c",
            "GIT_COMMITTER_EMAIL": "c@example.test",
            "GIT_AUTHOR_DATE": f"@{when} +0000",
            "GIT_COMMITTER_DATE": f"@{when} +0000",
        }
        done = subprocess.run(
            ["git", "-C", str(self.path), *arguments],
            input=data,
            check=True,
            capture_output=True,
            env=environment,
        )
        return done.stdout

    def blob(self, content: bytes) -> str:
        """Write a blob and return its id."""
        return self.git("hash-object", "-w", "--stdin", data=content)

    def commit(
        self,
        files: Mapping[str, bytes],
        *,
        links: Mapping[str, str] | None = None,
        submodules: Mapping[str, str] | None = None,
        when: int = 1_700_000_000,
    ) -> str:
        """Write a commit with these files at its root and return its id."""
        lines = [
            f"120000 blob {self.blob(target.encode())}\t{name}"
            for name, target in (links or {}).items()
        ]
        for name, identity in (submodules or {}).items():
            lines.append(f"160000 commit {identity}\t{name}")
        return self.git("commit-tree", "-m", "commit", self._tree(files, lines), when=when)

    def _tree(self, files: Mapping[str, bytes], lines: Iterable[str] = ()) -> str:
        """Write a tree of files, whose names may have folders, and return its id."""
        folders: dict[str, dict[str, bytes]] = {}
        entries = list(lines)
        for name, content in files.items():
            folder, _, inside = name.partition("/")
            if inside:
                folders.setdefault(folder, {})[inside] = content
            else:
                entries.append(f"100644 blob {self.blob(content)}\t{name}")
        entries += [f"040000 tree {self._tree(each)}\t{name}" for name, each in folders.items()]
        return self.git("mktree", "--missing", data="\n".join(entries).encode() + b"\n")

    def advance(self, branch: str, files: Mapping[str, bytes]) -> str:
        """Make these files the next commit of a branch and return its id."""
        reference = f"refs/heads/{branch}"
        before = self.git("for-each-ref", "--format=%(objectname)", reference).split()
        parents = [word for each in before for word in ("-p", each)]
        commit = self.git("commit-tree", *parents, "-m", "commit", self._tree(files))
        self.git("update-ref", reference, commit)
        return commit

    def tag(self, name: str, target: str, *, annotated: bool = False, when: int = 0) -> None:
        """Set a tag, moving one that exists."""
        if annotated:
            self.git("tag", "-f", "-a", "-m", "tag", name, target, when=when or 1_700_000_000)
        else:
            self.git("update-ref", f"refs/tags/{name}", target)

    def release(self, tag: str, content: bytes, *, when: int = 1_700_000_000) -> str:
        """Commit a configuration file, tag the commit and return its id."""
        commit = self.commit({"service-config.yml": content}, when=when)
        self.tag(tag, commit)
        return commit


@dataclass
class Repositories:
    """A directory of repositories, ``owner/name.git``."""

    path: Path
    """The directory."""

    def create(self, repo: str, *options: str) -> Repository:
        """Create an empty bare repository that allows partial clones."""
        path = self.path / f"{repo}.git"
        path.mkdir(parents=True)
        repository = Repository(path)
        repository.git("init", "--quiet", "--bare", *options)
        repository.git("config", "uploadpack.allowFilter", "true")
        return repository


@dataclass
class GitServer:
    """A running server; its fields may be changed while it runs."""

    root: Path
    """Directory of repositories."""
    served: HttpServer | None = None
    """The server; None before it runs."""
    password: str | None = None
    """Password required from every request; None = none."""
    status: int | None = None
    """Status to return for every request; None = use git."""
    location: str | None = None
    """Redirect target of every request; None = no redirect."""
    hold: threading.Event | None = None
    """Event that requests wait for; None = they do not wait."""

    @property
    def base(self) -> str:
        """Address below which the repositories lie."""
        assert self.served is not None
        return self.served.base

    @property
    def requests(self) -> list[Request]:
        """Received requests, in order."""
        assert self.served is not None
        return self.served.requests

    def respond(self, request: Request) -> Reply:
        """Return the response that the fields prescribe, or git's."""
        if self.hold is not None:
            self.hold.wait(60)
        if self.location is not None:
            return Reply(302, headers={"Location": self.location + request.path})
        if self.status is not None:
            return Reply(self.status, b"no\n")
        if self._refused(request):
            return Reply(401, b"no\n", {"WWW-Authenticate": 'Basic realm="git"'})
        return self._backend(request)

    def _refused(self, request: Request) -> bool:
        """Return whether the credentials of a request are missing or wrong."""
        if self.password is None:
            return False
        kind, _, value = request.headers.get("authorization", "").partition(" ")
        wanted = f":{self.password}".encode()
        return kind != "Basic" or not base64.b64decode(value).endswith(wanted)

    def _backend(self, request: Request) -> Reply:
        """Return what git says to a request."""
        found = respond(
            self.root,
            method=request.method,
            target=f"{request.path}?{request.query}",
            headers=request.headers,
            body=request.body,
        )
        return Reply(found.status, found.body, dict(found.headers))


@contextlib.contextmanager
def git_server(
    root: Path, *, tls: ssl.SSLContext | None = None, address: str = "127.0.0.1"
) -> Iterator[GitServer]:
    """Serve a directory of repositories over HTTP, until the block ends."""
    server = GitServer(root)
    with serve(server.respond, tls=tls, address=address) as served:
        server.served = served
        try:
            yield server
        finally:
            if server.hold is not None:
                server.hold.set()
