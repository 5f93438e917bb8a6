"""Runs a built image as a cluster would, or harder: read-only, without capabilities or network.

The image is unpacked from its OCI layout and started by runc itself. One of another architecture
is run by qemu, which is bound into it.
"""

import json
import subprocess
import tarfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.cluster.binaries import binary

__all__ = ["ImageContainer", "manifests_of"]

QEMU = {"arm64": "/usr/bin/qemu-aarch64-static"}
EMULATOR = "/emulator"


def _blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / digest.replace(":", "/")


def manifests_of(layout: Path, name: str) -> dict[str, str]:
    """Return the digest of an image's manifest by architecture."""
    entries = json.loads((layout / "index.json").read_text())["manifests"]
    reference = "org.opencontainers.image.ref.name"
    (index,) = (each["digest"] for each in entries if each["annotations"][reference] == name)
    members = json.loads(_blob(layout, index).read_text())["manifests"]
    return {each["platform"]["architecture"]: each["digest"] for each in members}


@dataclass(frozen=True)
class ImageContainer:
    """An unpacked image."""

    folder: Path
    config: Mapping[str, Any]
    """Its configuration (OCI image specification)."""
    emulator: str = ""
    """Program of this machine that runs those of the image; empty = the kernel does."""

    @classmethod
    def unpack(
        cls, layout: Path, name: str, architecture: str, folder: Path, *, emulated: bool
    ) -> "ImageContainer":
        """Unpack an image of a layout into a new folder."""
        digest = manifests_of(layout, name)[architecture]
        manifest = json.loads(_blob(layout, digest).read_text())
        for layer in manifest["layers"]:
            with tarfile.open(_blob(layout, layer["digest"])) as archive:
                archive.extractall(folder / "rootfs", filter="fully_trusted")
        config = json.loads(_blob(layout, manifest["config"]["digest"]).read_text())
        return cls(folder, config, QEMU[architecture] if emulated else "")

    @property
    def root(self) -> Path:
        """Folder of its files."""
        return self.folder / "rootfs"

    def run(
        self,
        *arguments: str,
        entrypoint: Sequence[str] | None = None,
        environment: Sequence[str] = (),
        binds: Mapping[Path, str] | None = None,
    ) -> "subprocess.CompletedProcess[str]":
        """Run it to its end.

        Parameters
        ----------
        environment
            ``NAME=value``, after that of the image.
        binds
            Folder or file of this machine -> where it is mounted, read-only.
        """
        said = self.config["config"]
        words = [*(said["Entrypoint"] if entrypoint is None else entrypoint), *arguments]
        mounts = dict(binds or {})
        if self.emulator:
            mounts[Path(self.emulator)] = EMULATOR
            words = [EMULATOR, *self._interpreted(words)]
        bundle = {
            "ociVersion": "1.0.2",
            "process": _process(said, words, environment),
            "root": {"path": str(self.root), "readonly": True},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
                {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"},
                *(_bind(source, target) for source, target in mounts.items()),
            ],
            "linux": {
                "namespaces": [{"type": each} for each in ("pid", "ipc", "uts", "mount", "network")]
            },
        }
        (self.folder / "config.json").write_text(json.dumps(bundle))
        return subprocess.run(
            [
                *(binary("runc"), "--root", self.folder / "state", "run"),
                *("--bundle", self.folder, f"image-{uuid.uuid4().hex[:12]}"),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )

    def _interpreted(self, words: Sequence[str]) -> list[str]:
        """Return a command by the path of its program, or of the interpreter of a script."""
        path = words[0] if words[0].startswith("/") else f"/usr/bin/{words[0]}"
        with (self.root / path[1:]).open("rb") as stream:
            first = stream.readline(200)
        before = first[2:].decode().split() if first.startswith(b"#!") else []
        return [*before, path, *words[1:]]


def _process(
    said: Mapping[str, Any], words: Sequence[str], environment: Sequence[str]
) -> dict[str, Any]:
    user, group = said["User"].split(":")
    return {
        "user": {"uid": int(user), "gid": int(group)},
        "args": list(words),
        "env": [*said.get("Env", []), *environment],
        "cwd": "/",
        "noNewPrivileges": True,
        "capabilities": {
            kind: [] for kind in ("bounding", "effective", "permitted", "inheritable", "ambient")
        },
    }


def _bind(source: Path, target: str) -> dict[str, Any]:
    options = ["rbind", "ro"]
    return {"destination": target, "type": "bind", "source": str(source), "options": options}
