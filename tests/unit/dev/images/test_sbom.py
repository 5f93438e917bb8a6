"""The bills of materials."""

import json
from pathlib import Path

import pytest

from dev.images import licences, sbom
from dev.images.debian import BaseSpec, LockedPackage
from dev.images.errors import ImageError
from dev.images.release import Release

IMAGE = sbom.Image("cloister", "arm64", f"sha256:{'a' * 64}")
RELEASE = Release("1.2.3", "0123abcd", 1_700_000_000)


def test_a_package_of_debian_is_named_with_its_digest() -> None:
    (component,) = sbom.debian_components(
        BaseSpec.read(),
        [LockedPackage("arm64", "libstdc++6", "1:14.2-1", "ab")],
        {"libstdc++6": "Files: *\nLicense: GPL-3+\n\nFiles: x\nLicense: GFDL-1.2\n text\n"},
    )
    purl = "pkg:deb/debian/libstdc%2B%2B6@1%3A14.2-1?arch=arm64&distro=trixie"
    assert component["purl"] == purl
    assert component["hashes"] == [{"alg": "SHA-256", "content": "ab"}]
    names = [each["license"]["name"] for each in component["licenses"]]
    assert names == ["GFDL-1.2", "GPL-3+"]


def test_the_same_content_gives_the_same_bill(tmp_path: Path) -> None:
    components = [{"name": name, "purl": f"pkg:pypi/{name}@1"} for name in ("a", "b")]
    sbom.write(tmp_path / "one", IMAGE, RELEASE, components)
    sbom.write(tmp_path / "two", IMAGE, RELEASE, reversed(components))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    written = json.loads((tmp_path / "one").read_text())
    described = written["metadata"]["component"]
    assert described["purl"] == f"pkg:oci/cloister@sha256%3A{'a' * 64}?arch=arm64"
    assert described["hashes"] == [{"alg": "SHA-256", "content": "a" * 64}]
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


WHEELS = ("cp313-cp313-manylinux_2_17_x86_64.manylinux2014_x86_64", "py3-none-any")


@pytest.mark.parametrize(
    ("tags", "chosen"),
    [
        (["cp313-cp313-manylinux_2_17_x86_64", "cp313-cp313-manylinux2014_x86_64"], WHEELS[0]),
        (["py3-none-any"], WHEELS[1]),
    ],
)
def test_a_distribution_is_named_by_the_wheel_that_was_installed(
    tags: list[str], chosen: str, tmp_path: Path
) -> None:
    listed = [
        {
            "type": "distribution",
            "url": f"https://files.example/a-1-{each}",
            "hashes": [{"alg": "SHA-256", "content": each}],
        }
        for each in ("1.tar.gz", *(f"{tag}.whl" for tag in WHEELS))
    ]
    known = {"name": "a", "version": "1", "type": "library", "purl": "pkg:pypi/a@1"}
    document = json.dumps({"components": [known | {"externalReferences": listed}]})
    uv = tmp_path / "uv"
    uv.write_text(f"#!/bin/sh\ncat <<END\n{document}\nEND\n")
    uv.chmod(0o755)
    described = tmp_path / "site" / "a-1.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Name: a\nVersion: 1\nLicense-Expression: MIT OR ISC\n")
    (described / "WHEEL").write_text("".join(f"Tag: {tag}\n" for tag in tags))
    (component,) = sbom.python_components(uv, tmp_path / "site")
    (reference,) = component["externalReferences"]
    assert reference["url"].endswith(f"{chosen}.whl")
    assert component["hashes"] == reference["hashes"]
    assert component["licenses"] == [{"expression": "MIT OR ISC"}]
    (described / "WHEEL").write_text("Tag: cp399-none-any\n")
    with pytest.raises(ImageError, match=r"0 wheels of uv\.lock have its tags, not one"):
        sbom.python_components(uv, tmp_path / "site")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Apache License\n   Version 2.0, January 2004", "Apache-2.0"),
        (
            "Redistributions of source code must retain … endorse or\npromote",
            "BSD-3-Clause",
        ),
        ("Redistributions of source\ncode must retain", "BSD-2-Clause"),
        ("Permission is hereby granted, free of charge, to", "MIT"),
        ("Mozilla Public License Version 2.0", "MPL-2.0"),
    ],
)
def test_a_text_is_known_by_its_words(text: str, name: str) -> None:
    assert licences.of_texts([text]) == [{"license": {"id": name}}]
    assert licences.of_texts(["All rights reserved."]) == []
