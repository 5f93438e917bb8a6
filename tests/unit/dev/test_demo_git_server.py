"""The demo's git server: what it serves can be fetched by git."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from dev.demo.git_server import respond
from dev.demo.repository import REPO, release
from dev.plain_http import NO_TRUST
from tests.support.ports import free_port
from tests.support.waiting import until_sync

IMAGE = "registry.test/demo/hello@sha256:" + "1" * 64

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Serve a repository with one release, and provide the server's address."""
    release(tmp_path / "repositories", tag="v1", image=IMAGE)
    port = free_port()
    command = [sys.executable, "-m", "dev.demo.git_server", "--address", "127.0.0.1"]
    with subprocess.Popen(
        [*command, "--port", str(port), str(tmp_path / "repositories")], stdout=subprocess.DEVNULL
    ) as server:
        try:
            base = f"http://127.0.0.1:{port}"
            until_sync(lambda: _responds(base), within=60, what="a server that listens")
            yield base
        finally:
            server.terminate()


def _responds(base: str) -> bool:
    try:
        return httpx.get(base, trust_env=False, verify=NO_TRUST).status_code > 0
    except httpx.TransportError:
        return False


def test_git_fetches_a_release(address: str, tmp_path: Path) -> None:
    clone = ["git", "clone", "--quiet", "--depth=1", "--branch=v1", f"{address}/{REPO}.git"]
    subprocess.run([*clone, str(tmp_path / "clone")], check=True, capture_output=True)
    assert IMAGE in (tmp_path / "clone" / "service-config.yml").read_text()


def test_a_repository_that_is_not_there_is_not_found(address: str) -> None:
    path = f"{address}/demo/other.git/info/refs?service=git-upload-pack"
    assert (
        httpx.get(path, timeout=60, trust_env=False, verify=NO_TRUST).status_code
        == httpx.codes.NOT_FOUND
    )


def test_nothing_is_pushed(address: str, tmp_path: Path) -> None:
    found = respond(
        tmp_path / "repositories",
        method="GET",
        target=f"/{REPO}.git/info/refs?service=git-receive-pack",
        headers={},
        body=b"",
    )
    assert found.status == httpx.codes.FORBIDDEN
