"""Images of a checkout are built once for what they are made of."""

import os
import shutil
from pathlib import Path

import pytest

from dev.cluster import Progress
from dev.images import local, tools
from dev.images.release import ROOT

PACKAGE = "crds/cloister_crds"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a small checkout, and an empty cache."""
    if shutil.which("go") is None:
        pytest.skip("Go is not installed")
    root = tmp_path / "checkout"
    for path in ("pyproject.toml", "uv.lock", "images/base.lock", f"{PACKAGE}/names.py"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, root / path)
    monkeypatch.setattr(local, "ROOT", root)
    monkeypatch.setenv("CLOISTER_CACHE", str(tmp_path / "cache"))
    return root


@pytest.mark.parametrize(
    "path", ["uv.lock", "images/base.lock", f"{PACKAGE}/names.py", f"{PACKAGE}/new.py"]
)
def test_a_change_of_what_they_are_made_of_makes_other_images(checkout: Path, path: str) -> None:
    before = local.key()
    with (checkout / path).open("a") as file:
        file.write("# more\n")
    assert local.key() != before


@pytest.mark.parametrize(
    "path", ["docs/page.md", "tests/test_one.py", f"{PACKAGE}/__pycache__/names.cpython-313.pyc"]
)
def test_a_change_of_something_else_does_not(checkout: Path, path: str) -> None:
    before = local.key()
    (checkout / path).parent.mkdir(parents=True)
    (checkout / path).write_text("more")
    assert local.key() == before


def test_images_that_nobody_has_used_for_a_while_are_removed(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "prepare", lambda progress: None)
    cache = tmp_path / "cache" / "images" / "local"
    built = cache / local.key()
    ages = {"before": 60, "long-ago": 7200, "longer-ago": 7300, "longest-ago": 7400}
    now = 1_700_000_000
    for name, age in {built.name: 0, **ages}.items():
        (cache / name).mkdir(parents=True)
        os.utime(cache / name, (now - age, now - age))
    found = local.local_images(Progress(quiet=True))
    assert found.folder == built
    assert {each.name for each in cache.iterdir() if each.is_dir()} == {
        *(built.name, "before", "long-ago")
    }
