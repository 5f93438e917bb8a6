"""The plugin of kubectl, installed by the real krew from its manifest and archive."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from dev.cluster.binaries import binary
from dev.images import site
from dev.images.release import current, project_version
from dev.images.tools import uv
from dev.release.plugin import manifest, write_archive

pytestmark = pytest.mark.programs("krew", "kubectl")

VERSION = "0.0.0-test"


def run(command: list[str | Path], folder: Path, code: int = 0) -> str:
    """Run a command in a home of its own, and return what it said."""
    places = (folder / ".krew" / "bin", binary("kubectl").parent, os.environ["PATH"])
    passed = {name: each for name, each in os.environ.items() if name.startswith("PIP_")}
    done = subprocess.run(
        command,
        cwd=folder,
        env=passed | {"HOME": str(folder), "PATH": ":".join(map(str, places))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


def test_krew_installs_the_plugin_which_installs_itself_once(tmp_path: Path) -> None:
    """Its packages come from where pip takes packages, by the hashes of uv.lock."""
    wheel = site.wheel(uv(), tmp_path / "wheel", current())
    archive = tmp_path / "kubectl-cloister.tar.gz"
    write_archive(uv(), wheel, archive, 1_000_000_000)
    described = tmp_path / "krew.yaml"
    described.write_text(manifest(archive, VERSION, "https://git.example.com/releases"))
    install: list[str | Path] = [binary("krew"), "install", f"--manifest={described}"]
    said = run([*install, f"--archive={archive}"], tmp_path)
    assert "Installed plugin: cloister" in said
    first = run(["kubectl", "cloister", "--version"], tmp_path)
    assert "installing its packages once" in first
    second = run(["kubectl", "cloister", "--version"], tmp_path)
    assert second == f"cloister {project_version()}\n"
    assert "kubectl cloister doctor" in run(["kubectl", "cloister", "doctor", "--help"], tmp_path)


def test_krew_refuses_an_archive_that_is_not_the_one_of_the_manifest(tmp_path: Path) -> None:
    wheel = tmp_path / "cloister-0.0.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    archive = tmp_path / "kubectl-cloister.tar.gz"
    write_archive(uv(), wheel, archive, 1_000_000_000)
    document = yaml.safe_load(manifest(archive, VERSION, "https://git.example.com/releases"))
    wheel.write_bytes(b"changed")
    write_archive(uv(), wheel, archive, 1_000_000_000)
    described = tmp_path / "krew.yaml"
    described.write_text(yaml.safe_dump(document))
    install: list[str | Path] = [binary("krew"), "install", f"--manifest={described}"]
    refused = run([*install, f"--archive={archive}"], tmp_path, code=1)
    assert "checksum does not match" in refused
