"""Programs are built once, atomically, by a real Go."""

import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from dev.cluster import binaries
from dev.cluster.binaries import Module, Versions, load
from dev.cluster.layout import LocalClusterError
from dev.cluster.processes import Progress

GO = shutil.which("go")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide the folder of a module ``hello``, the only one of the cluster."""
    if GO is None:
        pytest.skip("Go is not installed")
    folder = tmp_path / "modules" / "hello"
    folder.mkdir(parents=True)
    (folder / "go.mod").write_text("module example.org/hello\n\ngo 1.21\n")
    (folder / "main.go").write_text('package main\n\nfunc main() { print("hello") }\n')
    module = Module(name="hello", binaries={"greet": "example.org/hello"})
    versions = Versions(go=load().go, modules={"hello": module}, packages={})
    monkeypatch.setattr("dev.cluster.binaries.FOLDER", tmp_path)
    monkeypatch.setattr(binaries, "load", lambda: versions)
    monkeypatch.setenv("CLOISTER_CACHE", str(tmp_path / "cache"))
    return folder


def test_a_program_is_built_once_under_its_own_name(project: Path) -> None:
    assert binaries.missing(["greet"]) == ["greet"]
    path = binaries.binary("greet")
    assert subprocess.run([path], capture_output=True, text=True, check=True).stderr == "hello"
    built = path.stat().st_mtime_ns
    assert binaries.binary("greet").stat().st_mtime_ns == built
    assert binaries.missing(["greet"]) == []
    assert project.joinpath("go.mod").read_text().count("\n") == 3


def test_concurrent_runs_build_once(project: Path) -> None:
    found: list[int] = []

    def run() -> None:
        found.append(binaries.ensure(["greet"], Progress(quiet=True))["greet"].stat().st_ino)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert len(set(found)) == 1


def test_a_failed_build_shows_gos_error_and_leaves_nothing(project: Path) -> None:
    (project / "main.go").write_text("package main\n\nfunc main() { nonsense() }\n")
    with pytest.raises(LocalClusterError, match="undefined: nonsense"):
        binaries.binary("greet")
    assert binaries.missing(["greet"]) == ["greet"]
    assert not list(binaries.cache_folder().glob("bin/.build-*"))


def test_a_module_is_built_by_the_release_of_go_that_it_names(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = Module(name="hello", binaries={"greet": "example.org/hello"}, go="1.99.1")
    monkeypatch.setattr(
        binaries, "load", lambda: Versions(go=load().go, modules={"hello": named}, packages={})
    )
    # No network: whether the release exists is not asked.
    monkeypatch.setenv("GOPROXY", "off")
    with pytest.raises(
        LocalClusterError, match=r"(?s)needs Go 1\.99\.1, and this is .*: install Go"
    ):
        binaries.binary("greet")
    assert project.is_dir()


def test_a_missing_and_another_go_are_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    binaries.go_version.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalClusterError, match=r"Go is not installed.*install Go 1\.\d+\.\d+"):
        binaries.go_version()
    old = tmp_path / "go"
    old.write_text("#!/bin/sh\n[ $2 = -json ] && echo {} || echo go1.19.2\n")
    old.chmod(0o755)
    with pytest.raises(LocalClusterError, match=r"and this is go1\.19\.2: install Go"):
        binaries.go_version()
    binaries.go_version.cache_clear()
