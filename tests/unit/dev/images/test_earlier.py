"""The release that tests upgrade from."""

import subprocess
import tomllib
from pathlib import Path

import pytest

from dev.cluster.processes import Progress
from dev.images.earlier import EarlierRelease
from dev.images.errors import ImageError
from dev.images.release import ROOT, project_version
from dev.release.changelog import HEADING


def test_the_declared_commit_is_of_the_declared_version() -> None:
    declared = EarlierRelease.read()
    text = subprocess.check_output(
        ["git", "show", f"{declared.commit}:pyproject.toml"], cwd=ROOT, text=True
    )
    assert tomllib.loads(text)["project"]["version"] == declared.version
    assert declared.package.name == f"cloister-{declared.version}.tgz"


def test_it_is_the_newest_release_of_the_changelog() -> None:
    version, declared = project_version(), EarlierRelease.read().version
    released = [each["name"] for each in HEADING.finditer((ROOT / "CHANGELOG.md").read_text())]
    assert next(each for each in released if each not in {"Unreleased", version}) == declared


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
