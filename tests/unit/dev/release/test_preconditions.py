"""What is refused before a release, and what of the changelog goes into one."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from dev.images.release import ROOT, project_version
from dev.release.changelog import changes_of, section, unreleased
from dev.release.preconditions import Checkout, look, refusals

CHANGELOG = """\
# Changelog

## Unreleased

## 0.2.0 (2026-11-25)

### Added

- A thing.

## [0.1.0] - 2026-01-01

- The first.

## 0.1.0-rc.1
"""
RIGHT = Checkout("0.2.0", (), frozenset({"v0.1.0"}), CHANGELOG)


def test_a_right_checkout_is_released(tmp_path: Path) -> None:
    assert list(refusals(RIGHT, "0.2.0", tmp_path / "new")) == []
    assert list(refusals(RIGHT, "0.2.0", tmp_path)) == []


@pytest.mark.parametrize("version", ["1", "v0.2.0", "0.2", "0.2.0+build", "0.02.0", "0.2.0-", ""])
def test_what_is_no_version_is_refused(version: str, tmp_path: Path) -> None:
    (refused,) = refusals(RIGHT, version, tmp_path)
    assert refused.startswith(f"{version!r} is no version: write MAJOR.MINOR.PATCH")


@pytest.mark.parametrize(
    ("checkout", "version", "sentence"),
    [
        (RIGHT, "0.3.0", "pyproject.toml says 0.2.0, not 0.3.0: write that there"),
        (RIGHT, "0.3.0-rc.1", "pyproject.toml says 0.2.0, not 0.3.0: write that there"),
        (
            replace(RIGHT, changelog="## Unreleased\n\n- New.\n"),
            "0.2.0",
            "CHANGELOG.md has no section 0.2.0, or nothing in it",
        ),
        (replace(RIGHT, changed=("a", "b")), "0.2.0", "differs from its commit (a, b): commit it"),
        (replace(RIGHT, tags=frozenset({"v0.2.0"})), "0.2.0", "the tag v0.2.0 exists"),
        (
            replace(RIGHT, changelog=CHANGELOG.replace("ed\n\n## 0.2", "ed\n\n- New.\n\n## 0.2")),
            "0.2.0",
            "has changes under `## Unreleased`: put them into the section 0.2.0",
        ),
    ],
)
def test_a_wrong_checkout_is_refused(
    checkout: Checkout, version: str, sentence: str, tmp_path: Path
) -> None:
    assert [each for each in refusals(checkout, version, tmp_path) if sentence in each]


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "install.yaml").touch()
    (refused,) = refusals(RIGHT, "0.2.0", tmp_path)
    assert refused == f"{tmp_path} has something in it: name another OUTPUT, or remove it"


def test_a_pre_release_is_of_the_version_that_it_comes_before(tmp_path: Path) -> None:
    assert list(refusals(RIGHT, "0.2.0-rc.1", tmp_path)) == []


def test_a_pre_release_needs_no_finished_changelog(tmp_path: Path) -> None:
    changelog = CHANGELOG.replace("Unreleased\n", "Unreleased\n\n- New.\n")
    checkout = replace(RIGHT, version="0.3.0", changelog=changelog)
    assert list(refusals(checkout, "0.3.0-rc.1", tmp_path)) == []
    assert changes_of(changelog, "0.3.0-rc.1") == "- New.\n"
    assert changes_of(changelog, "0.2.0") == "### Added\n\n- A thing.\n"


@pytest.mark.parametrize(
    "page",
    [
        *("README.md", "Makefile", "docs/install.md", "docs/images.md"),
        *("docs/operations.md", "docs/operations/air-gap.md"),
    ],
)
def test_the_pages_name_the_version_that_this_checkout_can_release(
    page: str, tmp_path: Path
) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    words = r"--version |VERSION=|version=|version = \"|cloister-"
    named = set(re.findall(rf"(?:{words})(\d+\.\d+\.\d+(?:-rc\.\d+)?)", text))
    assert named
    version = project_version()
    assert named <= {version, f"{version}-rc.1"}
    if page in {"README.md", "Makefile"}:
        # As a newcomer types it, on any commit.
        checkout = replace(look(ROOT, version), changed=())
        assert [list(refusals(checkout, each, tmp_path)) for each in named] == [[]]


def test_a_checkout_says_what_it_is(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(
            ["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True
        )

    git("init", "--initial-branch=main")
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    (tmp_path / ".gitignore").write_text("dist/\n")
    git("add", ".")
    git("commit", "--message=Begin")
    git("tag", "v0.1.0")
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "built").touch()
    assert look(tmp_path, "0.2.0") == RIGHT
    (tmp_path / "more file").touch()
    assert look(tmp_path, "0.2.0").changed == ("more file",)


def test_a_section_ends_where_the_next_begins() -> None:
    assert section(CHANGELOG, "0.2.0") == "### Added\n\n- A thing.\n"
    assert section(CHANGELOG, "0.1.0") == "- The first.\n"
    assert section(CHANGELOG, "0.1.0-rc.1") == ""
    assert section(CHANGELOG, "0.1") == ""
    assert unreleased(CHANGELOG) == ""
    assert unreleased("## [Unreleased]\n\n- New.\n") == "- New.\n"
