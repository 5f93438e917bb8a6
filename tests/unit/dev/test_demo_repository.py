"""The demo's repository: real git, and releases that do not move."""

import subprocess
from pathlib import Path

import pytest

from dev.cluster import LocalClusterError
from dev.demo.repository import REPO, release

IMAGE = "registry.test/demo/hello@sha256:" + "1" * 64


def test_a_release_holds_the_digest_of_its_image(tmp_path: Path) -> None:
    base = tmp_path / "repositories"
    commit = release(base, tag="v1.0.0", image=IMAGE)
    shown = subprocess.run(
        ["git", "--git-dir", base / f"{REPO}.git", "show", f"{commit}:service-config.yml"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert f"image: {IMAGE}" in shown
    assert "0" * 64 not in shown


def test_an_existing_release_is_kept_and_another_one_is_added(tmp_path: Path) -> None:
    base = tmp_path / "repositories"
    first = release(base, tag="v1.0.0", image=IMAGE)
    second = release(base, tag="v1.1.0", image=IMAGE.replace("1" * 64, "2" * 64))
    assert first != second
    assert release(base, tag="v1.0.0", image=IMAGE) == first
    assert release(base, tag="v1.1.0", image=IMAGE.replace("1" * 64, "2" * 64)) == second


def test_a_failing_git_command_is_reported(tmp_path: Path) -> None:
    base = tmp_path / "repositories"
    (base / f"{REPO}.git").mkdir(parents=True)
    with pytest.raises(LocalClusterError, match="git clone"):
        release(base, tag="v1.0.0", image=IMAGE)
