"""Serves git repositories over HTTP: ``python -m dev.demo.git_server --address … ROOT``.

Git's own server is a CGI program, ``git http-backend``; this runs it for each request. It is for
a local cluster: whoever reaches it reads every repository.
"""

import contextlib
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click
from typing_extensions import override


@dataclass(frozen=True, slots=True)
class GitResponse:
    """What git says to a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def respond(
    root: Path, *, method: str, target: str, headers: Mapping[str, str], body: bytes
) -> GitResponse:
    """Run ``git http-backend`` for a request, by CGI (RFC 3875).

    Parameters
    ----------
    root
        Folder of the repositories, ``owner/name.git``.
    headers
        Its headers, names in lower case.
    """
    path, _, query = target.partition("?")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(root),
        "GIT_PROJECT_ROOT": str(root),
        "GIT_HTTP_EXPORT_ALL": "1",
        "GIT_PROTOCOL": headers.get("git-protocol", ""),
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "REQUEST_METHOD": method,
        "CONTENT_TYPE": headers.get("content-type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_CONTENT_ENCODING": headers.get("content-encoding", ""),
        "REMOTE_ADDR": "127.0.0.1",
    }
    done = subprocess.run(
        ["git", "http-backend"], input=body, env=environment, capture_output=True, check=False
    )
    if done.returncode != 0 and not done.stdout:
        return GitResponse(500, {"Content-Type": "text/plain"}, done.stderr)
    head, _, content = done.stdout.partition(b"\r\n\r\n")
    lines = (line.partition(": ") for line in head.decode().split("\r\n"))
    said = {key: value for key, _, value in lines if key}
    status = int(said.pop("Status", "200 OK").split(" ")[0])
    return GitResponse(status, said, content)


class _Handler(BaseHTTPRequestHandler):
    """Pass requests to git."""

    protocol_version = "HTTP/1.1"
    root: Path

    def _answer(self) -> None:
        found = respond(
            self.root,
            method=self.command,
            target=self.path,
            headers={key.lower(): value for key, value in self.headers.items()},
            body=self.rfile.read(int(self.headers.get("Content-Length", 0))),
        )
        # The client may disconnect at any time.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.send_response(found.status)
            for key, value in {**found.headers, "Content-Length": str(len(found.body))}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(found.body)

    do_GET = do_POST = _answer  # noqa: N815 - names that the library calls

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Write one line of the log."""
        click.echo(f"{self.client_address[0]} {format % args}")


@click.command()
@click.option("--address", required=True, help="Address of this machine to listen on.")
@click.option("--port", required=True, type=int)
@click.argument("root", type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(address: str, port: int, root: Path) -> None:
    """Serve the repositories below ROOT until it is stopped."""
    handler = type("Handler", (_Handler,), {"root": root})
    with ThreadingHTTPServer((address, port), handler) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
