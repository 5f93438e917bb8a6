"""The Go module of the guest binary, tested as `make test` runs it.

The tests themselves are beside the Go code, in operator/guest; this file vets,
runs and builds. Namespace tests need root and skip with a reason elsewhere.
"""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from dev.cluster.binaries import environment
from dev.cluster.guest import MODULE, build
from dev.cluster.images import guest_image

__all__: list[str] = []

TIMEOUT = 900.0
"""Seconds for one Go command; a slow machine compiles the module first."""

pytestmark = [
    pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed"),
    pytest.mark.timeout(TIMEOUT + 60),
]


def go(
    *arguments: str, directory: Path = MODULE, variables: Mapping[str, str] | None = None
) -> str:
    """Run the go command in the module, or in a copy of it, and return what it wrote.

    Raises
    ------
    AssertionError
        When the command failed; it shows the end of what was written.
    """
    done = subprocess.run(
        ["go", *arguments],
        cwd=directory,
        env={**environment(), **(variables or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, f"go {' '.join(arguments)}:\n{done.stdout[-6000:]}"
    return done.stdout


def test_vet_finds_nothing() -> None:
    go("vet", "./...")


def test_modules_are_pinned() -> None:
    go("mod", "verify")
    go("mod", "tidy", "-diff")


def test_go_tests_pass() -> None:
    race = ["-race"] if shutil.which("gcc") else []
    variables = {"CGO_ENABLED": "1"} if race else {}
    arguments = ("test", "-count=1", "-p", "1", "-parallel", "6", *race, "./...")
    written = go(*arguments, variables=variables)
    assert "cloister.dev/guest" in written


def test_two_builds_have_one_digest(tmp_path: Path) -> None:
    """The same sources make the same image, whatever the directory and the build cache."""
    layers = set()
    for number in range(2):
        copy = tmp_path / f"copy-{number}" / "guest"
        shutil.copytree(MODULE, copy)
        layers.add(guest_image(build(copy, tmp_path / f"guest-{number}")).layer())
    assert len(layers) == 1


def test_generated_tables_are_what_the_generator_writes(tmp_path: Path) -> None:
    """The tables of system call numbers come from a pinned module; nobody edits them by hand."""
    copy = tmp_path / "guest"
    shutil.copytree(MODULE, copy)
    place = Path("internal", "container", "seccomp")
    tables = sorted(path.name for path in (MODULE / place).glob("zsyscalls_*.go"))
    assert len(tables) == 4
    for table in tables:
        (copy / place / table).write_text("package seccomp\n")
    go("generate", "./internal/container/seccomp", directory=copy)
    for table in tables:
        written = (copy / place / table).read_bytes()
        assert written == (MODULE / place / table).read_bytes(), f"{table}: run go generate"
