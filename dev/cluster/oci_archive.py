"""Archives of images (OCI image layout specification, as a tar), for `ctr images import`.

`kind load image-archive` is that command in a node. Names are complete references, also such with
a digest: containerd then has the image under it, as after a pull.
"""

import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.cluster.images import INDEX, Image, json_bytes

NAME = "io.containerd.image.name"
"""Annotation with the reference that containerd gives an image."""
LAYOUT = {"imageLayoutVersion": "1.0.0"}


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive that is being written; the same images give the same bytes."""

    tar: tarfile.TarFile
    entries: list[dict[str, Any]]
    """What its index lists."""
    there: set[str]
    """Digests of the blobs that it has."""

    @classmethod
    def write(cls, path: Path, images: Mapping[str, Image]) -> None:
        """Write images of this machine, by their reference."""
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
            archive = cls(tar, [], set())
            for reference, image in sorted(images.items()):
                content = image.content()
                for digest, blob in content.blobs.items():
                    archive._add_blob(digest, blob)
                archive._name(content.descriptor, reference)
            archive._finish()

    @classmethod
    def copy(cls, path: Path, layout: Path, references: Mapping[str, tuple[str, ...]]) -> None:
        """Write images of a layout's folder.

        Parameters
        ----------
        references
            Name of an image in the layout -> the references that it gets.

        Raises
        ------
        KeyError
            When the layout has no image of a name.
        """
        index = json.loads((layout / "index.json").read_text())["manifests"]
        named = {each["annotations"]["org.opencontainers.image.ref.name"]: each for each in index}
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
            archive = cls(tar, [], set())
            for name, wanted in sorted(references.items()):
                descriptor = {key: named[name][key] for key in ("mediaType", "digest", "size")}
                for digest in _reached(layout, descriptor):
                    archive._add_blob(digest, _blob(layout, digest).read_bytes())
                for reference in wanted:
                    archive._name(descriptor, reference)
            archive._finish()

    def _name(self, descriptor: dict[str, Any], reference: str) -> None:
        self.entries.append({**descriptor, "annotations": {NAME: reference}})

    def _add_blob(self, digest: str, content: bytes) -> None:
        if digest not in self.there:
            self.there.add(digest)
            self._add(f"blobs/{digest.replace(':', '/')}", content)

    def _add(self, path: str, content: bytes) -> None:
        info = tarfile.TarInfo(path)
        info.size = len(content)
        self.tar.addfile(info, io.BytesIO(content))

    def _finish(self) -> None:
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": self.entries}
        self._add("oci-layout", json_bytes(LAYOUT))
        self._add("index.json", json_bytes(index))


def _blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / digest.replace(":", "/")


def _reached(layout: Path, descriptor: Mapping[str, Any]) -> Iterator[str]:
    """Return the digest of a descriptor and of everything that it refers to."""
    yield str(descriptor["digest"])
    if descriptor["mediaType"].endswith(("index.v1+json", "manifest.v1+json")):
        found = json.loads(_blob(layout, descriptor["digest"]).read_text())
        below = found.get("manifests") or [found["config"], *found["layers"]]
        for each in below:
            yield from _reached(layout, each)
