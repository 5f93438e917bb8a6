"""The programs of the local cluster: built from their Go modules, once, into a cache.

The cache lies outside the checkout (``$CLOISTER_CACHE``, default ``~/.cache/cloister``) and is
keyed by what was built how, so that a new version never meets an old program. Two runs at once
build once.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dev.cluster.progress import Progress
from dev.cluster.trouble import Trouble

__all__ = ["MODULES", "Module", "binary", "cache_folder", "ensure", "versions"]

MODULES = Path(__file__).parent / "modules"
"""Folder with one go.mod and go.sum per module."""
FLAGS = ("-mod=readonly", "-trimpath", "-buildvcs=false")


@dataclass(frozen=True, slots=True)
class Module:
    """A Go module and the programs that are built from it."""

    name: str
    """Folder under `MODULES`."""
    path: str
    """Module path."""
    version: str
    """Version, ``v`` and three numbers."""
    binaries: tuple[str, ...]
    """Names of the programs."""
    tags: tuple[str, ...] = ()
    """Build tags."""
    cgo: bool = False
    """Whether C is linked."""
    stamp: str = ""
    """Package whose version variables are set; empty = none."""

    def ldflags(self) -> str:
        """Answer the linker's flags; Kubernetes reports v0.0.0 without its version."""
        flags = ["-s", "-w"]
        if self.stamp:
            major, minor, _ = self.version.removeprefix("v").split(".")
            flags += [
                f"-X {self.stamp}.gitVersion={self.version}",
                f"-X {self.stamp}.gitMajor={major}",
                f"-X {self.stamp}.gitMinor={minor}",
                f"-X {self.stamp}.gitTreeState=clean",
            ]
        return " ".join(flags)

    def key(self, compiler: str) -> str:
        """Answer the name of its folder in the cache: what is built, how, by which compiler."""
        parts = hashlib.sha256()
        for file in ("go.mod", "go.sum"):
            parts.update((MODULES / self.name / file).read_bytes())
        parts.update(
            "\0".join((*FLAGS, *self.tags, self.ldflags(), str(self.cgo), compiler)).encode()
        )
        return f"{self.name}-{self.version}-{parts.hexdigest()[:12]}"


@cache
def versions() -> dict[str, Module]:
    """Read versions.toml: modules by name."""
    with (Path(__file__).parent / "versions.toml").open("rb") as file:
        table = tomllib.load(file)
    return {
        name: Module(
            name=name,
            path=entry["module"],
            version=entry["version"],
            binaries=tuple(entry["binaries"]),
            tags=tuple(entry.get("tags", ())),
            cgo=entry.get("cgo", False),
            stamp=entry.get("stamp", ""),
        )
        for name, entry in table.items()
    }


def cache_folder() -> Path:
    """Answer the folder of all that is built once."""
    return Path(os.environ.get("CLOISTER_CACHE") or Path.home() / ".cache" / "cloister")


@cache
def _compiler() -> str:
    if shutil.which("go") is None:
        raise Trouble("Go is not installed; install Go 1.26 or newer (https://go.dev/doc/install)")
    return subprocess.run(
        ["go", "env", "GOVERSION"], check=True, capture_output=True, text=True
    ).stdout.strip()


def ensure(*names: str, progress: Progress | None = None) -> dict[str, Path]:
    """Build what is missing of some modules.

    Parameters
    ----------
    names
        Names of modules in versions.toml.
    progress
        Where to tell what is built; None = standard error.

    Returns
    -------
    dict
        Path of each program by its name.

    Raises
    ------
    Trouble
        When Go is missing or a build fails, with Go's last words.
    """
    modules = [versions()[name] for name in names]
    folders = {module: cache_folder() / "bin" / module.key(_compiler()) for module in modules}
    missing = [module for module in modules if not folders[module].is_dir()]
    if missing:
        progress = progress or Progress()
        with _lock(cache_folder() / "bin" / ".lock"):
            for number, module in enumerate(missing, 1):
                if not folders[module].is_dir():
                    what = f"building {module.name} {module.version} ({number} of {len(missing)})"
                    with progress.step(what):
                        _build(module, folders[module])
    return {
        program: folder / program
        for module, folder in folders.items()
        for program in module.binaries
    }


def binary(module: str, name: str | None = None) -> Path:
    """Answer the path of one program, built when it is missing."""
    return ensure(module)[name or versions()[module].binaries[0]]


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(module: Module, target: Path) -> None:
    scratch = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    packages = subprocess.run(
        ["go", "list", "-mod=readonly", "tool"],
        cwd=MODULES / module.name,
        check=False,
        capture_output=True,
        text=True,
    )
    command = ["go", "build", *FLAGS, "-ldflags", module.ldflags(), "-o", f"{scratch}/"]
    if module.tags:
        command += ["-tags", ",".join(module.tags)]
    done = subprocess.run(
        [*command, *packages.stdout.split()],
        cwd=MODULES / module.name,
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "CGO_ENABLED": "1" if module.cgo else "0"},
    )
    if packages.returncode or done.returncode:
        words = "\n".join((packages.stderr + done.stderr).strip().splitlines()[-15:])
        shutil.rmtree(scratch, ignore_errors=True)
        raise Trouble(f"{module.name} {module.version} could not be built:\n{words}")
    _name_binaries(module, scratch)
    scratch.rename(target)


def _name_binaries(module: Module, folder: Path) -> None:
    """Give a program its name: Go names it after the last element of the path, such as v3."""
    built = sorted(path.name for path in folder.iterdir())
    if len(module.binaries) == 1 and built != [module.binaries[0]]:
        (folder / built[0]).rename(folder / module.binaries[0])
