"""A chart as a registry holds it: the same chart, the same digest."""

import hashlib
import json
import tarfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path

from dev.images.release import Release
from dev.release.chart_registry import write_layout

CHART = b"apiVersion: v2\nname: cloister\nversion: 0.2.0\ndescription: A chart\n"


def package(path: Path) -> Path:
    """Write a package with one file."""
    with tarfile.open(path, "w:gz") as archive:
        for name in ("cloister/Chart.yaml", "cloister/templates/Chart.yaml"):
            info = tarfile.TarInfo(name)
            info.size = len(CHART)
            archive.addfile(info, BytesIO(CHART))
    return path


def test_a_chart_has_the_digest_that_its_content_gives(tmp_path: Path) -> None:
    packed = package(tmp_path / "cloister-0.2.0.tgz")
    release = Release("0.2.0", "0" * 40, 1_000_000_000, "https://git.example.com/cloister")
    digest = write_layout(packed, tmp_path / "one", release)
    assert digest == write_layout(packed, tmp_path / "two", release)
    assert digest != write_layout(packed, tmp_path / "later", replace(release, time=1_000_000_001))
    index = json.loads((tmp_path / "one" / "index.json").read_text())
    (entry,) = index["manifests"]
    assert entry["digest"] == digest
    assert entry["annotations"] == {"org.opencontainers.image.ref.name": "0.2.0"}
    blobs = {path.name: path.read_bytes() for path in (tmp_path / "one" / "blobs").glob("*/*")}
    assert all(hashlib.sha256(content).hexdigest() == name for name, content in blobs.items())
    manifest = json.loads(blobs[digest.removeprefix("sha256:")])
    (layer,) = manifest["layers"]
    assert blobs[layer["digest"].removeprefix("sha256:")] == packed.read_bytes()
    config = json.loads(blobs[manifest["config"]["digest"].removeprefix("sha256:")])
    assert (config["name"], config["version"]) == ("cloister", "0.2.0")
    annotations = manifest["annotations"]
    assert annotations["org.opencontainers.image.created"] == "2001-09-09T01:46:40Z"
    assert annotations["org.opencontainers.image.revision"] == "0" * 40
    assert annotations["org.opencontainers.image.source"] == "https://git.example.com/cloister"
