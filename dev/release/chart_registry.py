"""Puts a packaged chart into a registry, the same chart under the same digest.

`helm push` writes the moment of the push into what it pushes, so that no two are alike. This is the
same artifact (https://helm.sh/docs/topics/registries) with the time of the commit.
"""

import hashlib
import io
import json
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml

from dev.images.release import Release

MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
CONFIG: Final = "application/vnd.cncf.helm.config.v1+json"
CONTENT: Final = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"


def write_layout(package: Path, layout: Path, release: Release) -> str:
    """Write a chart into an OCI layout of its own, and return the digest of its manifest.

    Parameters
    ----------
    layout
        Folder to make (OCI image layout specification).
    release
        The version is the chart's tag.
    """
    content = package.read_bytes()
    metadata = _metadata(content)
    made = datetime.fromtimestamp(release.time, UTC)
    annotations = release.labels(metadata["name"], metadata["description"]) | {
        "org.opencontainers.image.created": made.isoformat().replace("+00:00", "Z"),
        "org.opencontainers.image.licenses": "Apache-2.0",
    }
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _blob(blobs, CONFIG, json.dumps(metadata, sort_keys=True).encode()),
        "layers": [_blob(blobs, CONTENT, content)],
        "annotations": annotations,
    }
    entry = _blob(blobs, MANIFEST, json.dumps(manifest, sort_keys=True).encode())
    named = entry | {"annotations": {"org.opencontainers.image.ref.name": release.version}}
    index = {"schemaVersion": 2, "manifests": [named]}
    (layout / "index.json").write_text(json.dumps(index))
    (layout / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
    return str(entry["digest"])


def _metadata(content: bytes) -> dict[str, Any]:
    """Return Chart.yaml of a package."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        (name,) = (
            each for each in archive.getnames() if each.count("/") == 1 and "Chart.y" in each
        )
        stream = archive.extractfile(name)
        assert stream is not None
        found: dict[str, Any] = yaml.safe_load(stream.read())
    return found


def _blob(folder: Path, media_type: str, content: bytes) -> dict[str, Any]:
    """Write a blob, and return its descriptor."""
    digest = hashlib.sha256(content).hexdigest()
    (folder / digest).write_bytes(content)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}
