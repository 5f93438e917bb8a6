"""Images are reproducible, and a real registry accepts them."""

import io
import tarfile
from pathlib import Path

import pytest

from dev.cluster.images import Image, busybox_image
from dev.cluster.layout import LocalClusterError


def members(image: Image) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(image.layer())) as archive:
        return {entry.name: entry for entry in archive.getmembers()}


def test_the_same_content_gives_the_same_layer(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"binary")
    program.chmod(0o755)
    first = Image(files={"/bin/program": program, "/etc/a": b"a"}).layer()
    program.touch()
    assert Image(files={"/etc/a": b"a", "/bin/program": program}).layer() == first


def test_modes_folders_and_links(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"binary")
    program.chmod(0o750)
    found = members(
        Image(
            files={"/usr/bin/program": program, "/etc/a": b"a"},
            links={"/bin/p": "/usr/bin/program"},
            folders=("/tmp", "/var/open"),
        )
    )
    assert found["usr/bin/program"].mode == 0o755
    assert found["etc/a"].mode == 0o644
    assert found["tmp"].mode == found["var/open"].mode == 0o1777
    assert found["var"].mode == 0o755
    assert found["bin/p"].linkname == "/usr/bin/program"
    assert {entry.uid for entry in found.values()} == {0}
    names = list(found)
    assert names.index("usr") < names.index("usr/bin") < names.index("usr/bin/program")


def test_a_missing_busybox_is_reported(tmp_path: Path) -> None:
    with pytest.raises(LocalClusterError, match="busybox-static"):
        busybox_image(tmp_path / "busybox")
