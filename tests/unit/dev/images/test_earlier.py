"""The release that tests upgrade from."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from dev.cluster.processes import Progress
from dev.images.earlier import DECLARED, EarlierRelease
from dev.images.errors import ImageError


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a clone with two commits of 0.1.0 and one of 0.2.0."""
    git("init", "--quiet", folder=tmp_path)
    for version, text in (("0.1.0", "first"), ("0.1.0", "last"), ("0.2.0", "next")):
        (tmp_path / "pyproject.toml").write_text(f'version = "{version}"\n')
        (tmp_path / "code").write_text(text)
        git("add", ".", folder=tmp_path)
        git("commit", "--quiet", "--message", text, folder=tmp_path)
    return tmp_path


def git(*arguments: str, folder: Path) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.test", "-c", "commit.gpgsign=false")
    return subprocess.check_output(["git", *who, *arguments], cwd=folder, text=True).strip()


def declared(folder: Path, version: str) -> Path:
    """Return a declaration of a version."""
    path = folder / "release.toml"
    path.write_text(f'version = "{version}"\n')
    return path


def test_without_a_tag_it_is_the_last_commit_of_the_version(repository: Path) -> None:
    found = EarlierRelease.read(declared(repository, "0.1.0"), repository)
    assert found.commit == git("rev-parse", "HEAD^", folder=repository)
    assert found.package.name == "cloister-0.1.0.tgz"


def test_a_tag_wins(repository: Path) -> None:
    git("tag", "--annotate", "--message", "one", "v0.1.0", "HEAD^^", folder=repository)
    found = EarlierRelease.read(declared(repository, "0.1.0"), repository)
    assert found.commit == git("rev-parse", "HEAD^^", folder=repository)


def test_a_version_that_the_history_lacks_is_named_with_the_remedy(repository: Path) -> None:
    with pytest.raises(ImageError, match=r"release 0\.0\.1 is not in the history .*unshallow"):
        EarlierRelease.read(declared(repository, "0.0.1"), repository)


def test_the_declared_one_is_a_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", tomllib.loads(DECLARED.read_text())["version"])


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
