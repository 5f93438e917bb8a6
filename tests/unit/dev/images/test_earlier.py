"""The release that tests upgrade from."""

import re
from pathlib import Path

import pytest

from dev.cluster.progress import Progress
from dev.images.earlier import EarlierRelease
from dev.images.errors import ImageError


def test_it_is_declared_by_version_and_whole_commit() -> None:
    declared = EarlierRelease.read()
    assert re.fullmatch(r"\d+\.\d+\.\d+", declared.version)
    assert re.fullmatch(r"[0-9a-f]{40}", declared.commit)
    assert declared.package.name == f"cloister-{declared.version}.tgz"


def test_a_commit_that_is_not_in_the_clone_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOISTER_CACHE", str(tmp_path))
    monkeypatch.setenv("CLOISTER_STATE", str(tmp_path))
    missing = EarlierRelease("0.0.9", "f" * 40)
    with pytest.raises(ImageError, match=r"of release 0\.0\.9 is not in this clone: .*unshallow"):
        missing.rebuild(Progress(quiet=True))
    assert not missing.folder.exists()


def test_what_is_built_is_not_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOISTER_CACHE", str(tmp_path))
    monkeypatch.setenv("CLOISTER_STATE", str(tmp_path))
    built = EarlierRelease("0.0.9", "f" * 40)
    built.folder.mkdir(parents=True)
    (built.folder / "images.lock").touch()
    built.rebuild(Progress(quiet=True))
