"""The base of the images: its lock file, and the root that is made of packages."""

import hashlib
import io
import re
import tarfile
from pathlib import Path

import pytest

from dev.images import debian, rootfs
from dev.images.debian import BaseSpec, LockedPackage
from dev.images.errors import ImageError

DIGEST = "ab" * 32


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "base.lock"


def test_each_architecture_has_its_packages(lock: Path) -> None:
    lock.write_text(f"# head\n\namd64 git 1:2 {DIGEST}\narm64 git 1:3 {DIGEST}\n")
    assert debian.read_lock("arm64", lock) == (LockedPackage("arm64", "git", "1:3", DIGEST),)


@pytest.mark.parametrize(
    "line", ["amd64 git 1:2", f"amd64 git 1:2 {DIGEST} more", f"amd64 git 1:2 {DIGEST[1:]}"]
)
def test_a_line_that_is_no_package_is_refused(lock: Path, line: str) -> None:
    lock.write_text(f"# head\n{line}\n")
    sentence = f"base.lock, line 2: '{line}' is not an architecture, a package, a version and a"
    with pytest.raises(ImageError, match=re.escape(sentence)):
        debian.read_lock("amd64", lock)


def test_an_architecture_without_packages_is_refused(lock: Path) -> None:
    lock.write_text(f"amd64 git 1:2 {DIGEST}\n")
    with pytest.raises(ImageError, match=r"no package for riscv64; .*`make images-lock`"):
        debian.read_lock("riscv64", lock)


def test_a_file_with_another_content_than_the_locked_one_is_refused(tmp_path: Path) -> None:
    content = b"package"
    (tmp_path / "git_1%3a2_amd64.deb").write_bytes(content)
    good = LockedPackage("amd64", "git", "1:2", hashlib.sha256(content).hexdigest())
    assert [name for name, _ in debian.check([good], tmp_path)] == ["git"]
    tampered = LockedPackage("amd64", "git", "1:2", DIGEST)
    with pytest.raises(ImageError, match=r"do not have the SHA-256 that is locked: git 1:2; renew"):
        debian.check([tampered], tmp_path)


def test_every_package_that_is_asked_for_is_locked_for_every_architecture() -> None:
    spec = BaseSpec.read()
    for architecture in spec.architectures:
        locked = {each.name for each in debian.read_lock(architecture)}
        assert set(spec.packages) <= locked
        assert not locked & spec.excluded


def test_the_tar_follows_from_the_entries_alone(tmp_path: Path) -> None:
    entries = {
        "usr/bin/git": rootfs.Entry(0o755, b"program"),
        "bin": rootfs.Entry(0o777, target="usr/bin"),
    }
    rootfs.write_tar(entries, tmp_path / "one.tar", 5)
    rootfs.write_tar(dict(reversed(entries.items())), tmp_path / "two.tar", 5)
    content = (tmp_path / "one.tar").read_bytes()
    assert content == (tmp_path / "two.tar").read_bytes()
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert [each.name for each in archive] == ["bin", "usr", "usr/bin", "usr/bin/git"]
        assert {(each.uid, each.gid, each.mtime) for each in archive} == {(0, 0, 5)}
