"""The bills of materials."""

import json
from pathlib import Path

import pytest

from dev.images import sbom
from dev.images.debian import BaseSpec, LockedPackage
from dev.images.errors import ImageError
from dev.images.release import Release

RELEASE = Release("1.2.3", "0123abcd", 1_700_000_000)


def test_a_package_of_debian_is_named_with_its_digest() -> None:
    (component,) = sbom.debian_components(
        BaseSpec.read(), [LockedPackage("arm64", "libstdc++6", "1:14.2-1", "ab")]
    )
    purl = "pkg:deb/debian/libstdc%2B%2B6@1%3A14.2-1?arch=arm64&distro=trixie"
    assert component["purl"] == purl
    assert component["hashes"] == [{"alg": "SHA-256", "content": "ab"}]


def test_the_same_content_gives_the_same_bill(tmp_path: Path) -> None:
    components = [{"name": name, "purl": f"pkg:pypi/{name}@1"} for name in ("a", "b")]
    sbom.write(tmp_path / "one", "cloister", RELEASE, components)
    sbom.write(tmp_path / "two", "cloister", RELEASE, reversed(components))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    written = json.loads((tmp_path / "one").read_text())
    assert written["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"
    assert [each["name"] for each in written["components"]] == ["a", "b"]


def test_a_distribution_that_is_not_locked_is_refused(tmp_path: Path) -> None:
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\necho '{\"components\": []}'\n")
    uv.chmod(0o755)
    described = tmp_path / "site" / "stray-1.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: stray\nVersion: 1\n")
    with pytest.raises(ImageError, match=r"stray 1 was installed, and uv\.lock does not have it"):
        sbom.python_components(uv, tmp_path / "site")
