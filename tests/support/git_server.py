"""Real git repositories, and git's own HTTP server behind a small one in Python.

`Repositories` makes repositories with the program git; `git_server` serves them over HTTP through
``git http-backend``, as a real server does, on a free port of the loopback.
"""

import base64
import contextlib
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from typing_extensions import override

__all__ = ["GitServer", "Repositories", "Repository", "git_server", "needs_git"]

BACKEND = Path(subprocess.run(
    ["git", "--exec-path"], check=True, capture_output=True, text=True
).stdout.strip()) / "git-http-backend" if shutil.which("git") else Path("/nonexistent")  # fmt: skip


def needs_git() -> str | None:
    """Answer what is missing to serve git over HTTP; None when nothing is."""
    return None if BACKEND.exists() else "the program git with git-http-backend is not installed"


@dataclass
class Repository:
    """One bare repository, written to with plumbing commands alone."""

    path: Path
    """The bare repository."""

    def git(self, *arguments: str, data: bytes = b"", when: int = 1_700_000_000) -> str:
        """Run git in the repository, as a fixed person at a fixed time (seconds)."""
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
        return done.stdout.decode().strip()

    def blob(self, content: bytes) -> str:
        """Write a blob and answer its id."""
        return self.git("hash-object", "-w", "--stdin", data=content)

    def commit(
        self,
        files: Mapping[str, bytes],
        *,
        links: Mapping[str, str] | None = None,
        submodules: Mapping[str, str] | None = None,
        when: int = 1_700_000_000,
    ) -> str:
        """Write a commit with these files at its root and answer its id."""
        lines = [f"100644 blob {self.blob(content)}\t{name}" for name, content in files.items()]
        for name, target in (links or {}).items():
            lines.append(f"120000 blob {self.blob(target.encode())}\t{name}")
        for name, identity in (submodules or {}).items():
            lines.append(f"160000 commit {identity}\t{name}")
        tree = self.git("mktree", "--missing", data="\n".join(lines).encode() + b"\n")
        return self.git("commit-tree", "-m", "commit", tree, when=when)

    def tag(self, name: str, target: str, *, annotated: bool = False, when: int = 0) -> None:
        """Set a tag, moving one that exists."""
        if annotated:
            self.git("tag", "-f", "-a", "-m", "tag", name, target, when=when or 1_700_000_000)
        else:
            self.git("update-ref", f"refs/tags/{name}", target)

    def release(self, tag: str, content: bytes, *, when: int = 1_700_000_000) -> str:
        """Commit a configuration file, tag the commit and answer its id."""
        commit = self.commit({"service-config.yml": content}, when=when)
        self.tag(tag, commit)
        return commit


@dataclass
class Repositories:
    """A directory of repositories, ``owner/name.git``."""

    path: Path
    """The directory."""

    def create(self, repo: str, *options: str) -> Repository:
        """Make an empty bare repository; it may be fetched from with filters."""
        path = self.path / f"{repo}.git"
        path.mkdir(parents=True)
        repository = Repository(path)
        repository.git("init", "--quiet", "--bare", *options)
        repository.git("config", "uploadpack.allowFilter", "true")
        return repository


@dataclass
class GitServer:
    """A running server and what it was asked."""

    port: int
    """Port on the loopback."""
    root: Path
    """Directory of repositories."""
    password: str | None = None
    """Password that every request needs; None: none does."""
    status: int | None = None
    """Status with which every request is answered instead; None: git answers."""
    location: str | None = None
    """Address to which every request is redirected; None: none is."""
    hold: threading.Event | None = None
    """Requests wait for it; None: they do not."""
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Path and headers (names in lower case) of each request, in order."""

    @property
    def base(self) -> str:
        """Address below which the repositories lie."""
        return f"http://127.0.0.1:{self.port}"

    def refused(self, headers: Mapping[str, str]) -> bool:
        """Answer whether the credentials of a request are missing or wrong."""
        if self.password is None:
            return False
        kind, _, value = headers.get("authorization", "").partition(" ")
        wanted = f":{self.password}".encode()
        return kind != "Basic" or not base64.b64decode(value).endswith(wanted)


class _Handler(BaseHTTPRequestHandler):
    """Passes requests to ``git http-backend`` by the rules of CGI (RFC 3875)."""

    protocol_version = "HTTP/1.1"
    git_server: GitServer

    def do_GET(self) -> None:
        """Answer a listing of references."""
        self._answer()

    def do_POST(self) -> None:
        """Answer a fetch."""
        self._answer()

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output clean."""

    def _answer(self) -> None:
        server = self.git_server
        headers = {key.lower(): value for key, value in self.headers.items()}
        body = self._body()
        server.requests.append((self.path, headers))
        if server.hold is not None:
            server.hold.wait(60)
        if server.location is not None:
            self._send(302, {"Location": server.location + self.path}, b"")
        elif server.status is not None:
            self._send(server.status, {}, b"no\n")
        elif server.refused(headers):
            self._send(401, {"WWW-Authenticate": 'Basic realm="git"'}, b"no\n")
        else:
            self._backend(headers, body)

    def _body(self) -> bytes:
        """Read the request's body, in one piece or in chunks."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _backend(self, headers: Mapping[str, str], body: bytes) -> None:
        path, _, query = self.path.partition("?")
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.git_server.root),
            "GIT_PROJECT_ROOT": str(self.git_server.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": headers.get("git-protocol", ""),
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": headers.get("content-type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": headers.get("content-encoding", ""),
            "REMOTE_ADDR": "127.0.0.1",
        }
        done = subprocess.run(
            [str(BACKEND)], input=body, env=environment, capture_output=True, check=False
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        answered: dict[str, str] = {}
        for line in head.decode().split("\r\n"):
            key, _, value = line.partition(": ")
            answered[key] = value
        status = int(answered.pop("Status", "200 OK").split(" ")[0])
        self._send(status, answered, content)

    def _send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)


@contextlib.contextmanager
def git_server(root: Path) -> Iterator[GitServer]:
    """Serve a directory of repositories over HTTP, until the block ends."""

    class Handler(_Handler):
        pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server = GitServer(port=listener.server_address[1], root=root)
    Handler.git_server = server
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        if server.hold is not None:
            server.hold.set()
        listener.shutdown()
        thread.join()
        listener.server_close()
