"""The plugin of kubectl: an archive with one program, the same bytes twice, and krew's manifest."""

import hashlib
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import yaml

from dev.images.tools import uv
from dev.release import launcher
from dev.release.plugin import manifest, write_archive

WHEEL = "cloister-0.2.0-py3-none-any.whl"


def archive_of(folder: Path, name: str = "plugin.tar.gz") -> Path:
    """Write an archive with a wheel that is none."""
    (folder / WHEEL).write_bytes(b"wheel")
    write_archive(uv(), folder / WHEEL, folder / name, 1_000_000_000)
    return folder / name


def test_an_archive_is_the_same_twice_and_locks_all_that_it_installs(tmp_path: Path) -> None:
    archive = archive_of(tmp_path)
    assert archive.read_bytes() == archive_of(tmp_path, "again.tar.gz").read_bytes()
    with tarfile.open(archive) as opened:
        members = {each.name: each for each in opened}
        text = opened.extractfile("requirements.txt")
        assert text is not None
        requirements = text.read().decode()
    assert members.keys() == {"kubectl-cloister", "LICENSE", "requirements.txt", WHEEL}
    assert {each.mtime for each in members.values()} == {1_000_000_000}
    assert members["kubectl-cloister"].mode & stat.S_IXUSR
    digest = hashlib.sha256(b"wheel").hexdigest()
    assert requirements.endswith(f"./{WHEEL} --hash=sha256:{digest}\n")
    joined = requirements.replace("\\\n", "")
    for line in filter(None, joined.splitlines()):
        assert "--hash=sha256:" in line
    assert "pydantic==" in joined
    # For backup and restore.
    assert "sqlalchemy==" in joined
    assert "pytest" not in joined


def test_the_manifest_names_the_archive_by_its_sum(tmp_path: Path) -> None:
    archive = archive_of(tmp_path)
    source = "https://git.example.com/cloister"
    document = yaml.safe_load(manifest(archive, "0.2.0", "https://example.com/v0.2.0/", source))
    assert document["spec"]["homepage"] == source
    assert document["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert document["metadata"] == {"name": "cloister"}
    assert document["spec"]["version"] == "v0.2.0"
    (platform,) = document["spec"]["platforms"]
    assert platform["uri"] == "https://example.com/v0.2.0/plugin.tar.gz"
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert platform["bin"] == "kubectl-cloister"
    alone = yaml.safe_load(manifest(archive, "0.2.0", ""))
    assert alone["spec"]["platforms"][0]["uri"] == "plugin.tar.gz"
    assert "homepage" not in alone["spec"]


def test_a_plugin_that_cannot_install_leaves_nothing_behind(tmp_path: Path) -> None:
    """Its lock does not fit what lies beside it: pip refuses, and says so."""
    place = tmp_path / "plugin"
    place.mkdir()
    (place / "kubectl-cloister").write_bytes(Path(launcher.__file__).read_bytes())
    (place / WHEEL).write_bytes(b"changed")
    digest = hashlib.sha256(b"wheel").hexdigest()
    (place / "requirements.txt").write_text(f"./{WHEEL} --hash=sha256:{digest}\n")
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PIP_NO_INDEX": "1"}
    done = subprocess.run(
        [sys.executable, place / "kubectl-cloister", "--version"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 1
    assert "its packages could not be installed" in done.stderr
    assert list((tmp_path / ".cache" / "cloister" / "plugin").iterdir()) == []
