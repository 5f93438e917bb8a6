"""Calls of the program docker, which finds its daemon by ``DOCKER_HOST`` and its contexts."""

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dev.cluster.images import json_bytes
from dev.cluster.kind.control_plane import architecture
from dev.cluster.layout import LocalClusterError


def answers() -> bool:
    """Return whether a Docker daemon responds within three seconds."""
    if shutil.which("docker") is None:
        return False
    try:
        done = subprocess.run(
            ["docker", "info", "--format", "{{.ServerVersion}}"],
            capture_output=True,
            text=True,
            timeout=3,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0 and bool(done.stdout.strip())


def has_image(name: str) -> bool:
    """Return whether the daemon has an image."""
    return bool(json.loads(run(["docker", "image", "inspect", name], check=False) or "[]"))


def write_archive(to: Path, name: str, layer: Path, start: Mapping[str, Any]) -> None:
    """Write an image of one layer as `docker load` reads it.

    Parameters
    ----------
    start
        How it is started, as in an image's configuration (OCI image specification).

    Raises
    ------
    LocalClusterError
        When no node is made for the architecture of this machine.
    """
    with layer.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    config = {
        "architecture": architecture(),
        "os": "linux",
        "config": dict(start),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(to, "w", format=tarfile.PAX_FORMAT) as archive:
        for at, content in (("config.json", config), ("manifest.json", manifest)):
            data = json_bytes(content)
            entry = tarfile.TarInfo(at)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        entry = tarfile.TarInfo("layer.tar")
        entry.size = layer.stat().st_size
        with layer.open("rb") as stream:
            archive.addfile(entry, stream)


def load(archive: Path) -> None:
    """Load the image of an archive into the daemon.

    Raises
    ------
    LocalClusterError
        When Docker refuses.
    """
    run(["docker", "load", "--quiet", "--input", str(archive)])


def run(command: list[str], *, check: bool = True) -> str:
    """Run a program, and return its output.

    Raises
    ------
    LocalClusterError
        When it fails and ``check`` is set; with the end of what it said.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        said = done.stderr.strip()[-1500:]
        raise LocalClusterError(f"{' '.join(command)} failed: {said}")
    return done.stdout
