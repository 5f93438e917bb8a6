"""Builds images from Dockerfiles by buildah, without a daemon and without a network."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dev.images.commands import run

PLATFORMS = {"amd64": "linux/amd64", "arm64": "linux/arm64/v8"}
"""Architecture -> platform; without the variant buildah does not find the image of a base."""


@dataclass(frozen=True, slots=True)
class Store:
    """A store of images of our own, beside those of this machine."""

    folder: Path
    runtime: Path
    """The program runc, which runs what a Dockerfile says."""

    def _buildah(self, *arguments: str | Path) -> bytes:
        places = ("--root", self.folder / "images", "--runroot", self.folder / "run")
        # What it mounts ends with it, also when it is killed.
        return run(["unshare", "--mount", "buildah", *places, *arguments])

    def build(
        self,
        name: str,
        dockerfile: Path,
        context: Path,
        *,
        architecture: str,
        time: int,
        arguments: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Build one image.

        Parameters
        ----------
        time
            Of the image and of every file in it, in seconds of Unix time.

        Raises
        ------
        ImageError
            When the build fails.
        """
        given = [f"--build-arg={key}={value}" for key, value in (arguments or {}).items()]
        labelled = [f"--label={key}={value}" for key, value in (labels or {}).items()]
        self._buildah(
            *("bud", "--quiet", "--isolation=oci", "--runtime", self.runtime, "--network=none"),
            *(f"--timestamp={time}", "--platform", PLATFORMS[architecture], "--pull-never"),
            *("--layers=false", "--identity-label=false", "--format=oci"),
            *given,
            *labelled,
            *("--tag", name, "--file", dockerfile, context),
        )

    def write_index(
        self,
        name: str,
        members: Mapping[str, str],
        layout: Path,
        tag: str,
        annotations: Mapping[str, str],
    ) -> str:
        """Put images of several architectures under an index, and write it into an OCI layout.

        Parameters
        ----------
        name
            Name of the index in this store, where none has it yet.
        layout
            Folder of the layout (OCI image layout specification).
        annotations
            Annotations of the index.

        Returns
        -------
        str
            Digest of the index.

        Raises
        ------
        ImageError
            When it cannot be written.
        """
        self._buildah("manifest", "create", name)
        for _, member in sorted(members.items()):
            self._buildah("manifest", "add", name, f"containers-storage:{member}")
        self._buildah("manifest", "push", "--all", "--format=oci", name, f"oci:{layout}:{tag}")
        return _annotate(layout, tag, annotations)


def _annotate(layout: Path, tag: str, annotations: Mapping[str, str]) -> str:
    """Return the digest of an index of a layout, with annotations, which buildah gives it none."""
    listed = json.loads((layout / "index.json").read_text())
    wanted = "org.opencontainers.image.ref.name"
    (entry,) = (each for each in listed["manifests"] if each["annotations"][wanted] == tag)
    blobs = layout / "blobs" / "sha256"
    before = blobs / entry["digest"].removeprefix("sha256:")
    if annotations:
        content = json.dumps(
            json.loads(before.read_text()) | {"annotations": dict(annotations)}, sort_keys=True
        ).encode()
        before.unlink()
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        entry |= {"digest": f"sha256:{digest}", "size": len(content)}
        (layout / "index.json").write_text(json.dumps(listed))
    return str(entry["digest"])
