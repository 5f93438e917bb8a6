"""Packages of others in an environment of their own, made once in the cache from pinned hashes."""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal

from dev.cluster.binaries import cache_folder

__all__ = ["Language", "foreign_packages", "interpreter"]

Language = Literal["python", "javascript"]


def foreign_packages(folder: Path, language: Language) -> Path:
    """Return a copy of a folder with the packages that it pins; make it unless it exists.

    Parameters
    ----------
    folder
        Has ``requirements.txt`` with hashes, or ``package-lock.json``, and programs that use them.
    """
    digest = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        digest.update(file.read_bytes())
    place = cache_folder() / f"{folder.name}-clients" / digest.hexdigest()[:12] / language
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            scratch = place.with_suffix(".new")
            shutil.rmtree(scratch, ignore_errors=True)
            shutil.copytree(folder, scratch)
            _install(language, scratch)
            scratch.rename(place)
    return place


def interpreter(place: Path, language: Language) -> str:
    """Return the interpreter of an environment."""
    if language == "python":
        return str(place / "venv" / "bin" / "python")
    return shutil.which("node") or "node"


def _install(language: Language, place: Path) -> None:
    """Install the pinned packages; `venv` finds its interpreter wherever it is moved."""
    pip = ("venv/bin/python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    commands: dict[Language, list[tuple[str, ...]]] = {
        "python": [
            (sys.executable, "-m", "venv", "venv"),
            (*pip, "--require-hashes", "--only-binary", ":all:", "-r", "requirements.txt"),
        ],
        "javascript": [("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")],
    }
    for command in commands[language]:
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
