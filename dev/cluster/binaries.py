"""Build the cluster's programs from their Go modules into a cache outside the checkout.

A folder per module and key (a hash of go.mod, go.sum, our sources, flags and the
version of Go); a program is put there atomically. A lock per module keeps
two runs from building the same twice.
"""

import fcntl
import hashlib
import os
import platform
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dev.cluster.errors import LocalClusterError
from dev.cluster.progress import Progress, duration
from dev.cluster.toolchain import environment, go_version
from dev.cluster.versions import Module, load

SHOWN = 15
"""Lines of a failed build that the error shows."""


def cache_folder() -> Path:
    """Return the folder of built programs: ``$CLOISTER_CACHE`` or ``~/.cache/cloister``."""
    return Path(os.environ.get("CLOISTER_CACHE") or Path.home() / ".cache" / "cloister")


def key_of(module: Module, go: str) -> str:
    """Compute the cache key of a module's builds: 12 hexadecimal digits."""
    digest = hashlib.sha256()
    for path in sorted(module.folder.iterdir()):
        if path.name in {"go.mod", "go.sum"} or path.suffix == ".go":
            content = path.read_bytes()
            digest.update(f"{path.name} {len(content)}\n".encode() + content)
    flags = (module.tags, module.cgo, module.ldflags, go, platform.machine())
    digest.update(repr(flags).encode())
    return digest.hexdigest()[:12]


def _folder(module: Module) -> Path:
    return cache_folder() / "bin" / f"{module.name}-{key_of(module, go_version(module.go))}"


def _place(name: str) -> Path:
    return _folder(load().module_of(name)) / name


def binary(name: str) -> Path:
    """Return the path of one program; build it when it is missing.

    Parameters
    ----------
    name
        Name of the program, such as ``kubelet``.

    Raises
    ------
    LocalClusterError
        When it cannot be built.
    """
    return ensure([name])[name]


def missing(names: Iterable[str]) -> list[str]:
    """List the programs that are not built yet."""
    return [name for name in names if not _place(name).exists()]


def ensure(names: Iterable[str], progress: Progress | None = None) -> dict[str, Path]:
    """Build what is not built yet.

    Parameters
    ----------
    progress
        Where progress is shown; None = on stderr.

    Raises
    ------
    LocalClusterError
        When Go is missing or too old, or a build fails.
    """
    progress = progress or Progress()
    wanted = list(dict.fromkeys(names))
    todo = missing(wanted)
    if todo:
        progress.say(f"building {len(todo)} programs once, into {cache_folder() / 'bin'}")
    modules: dict[str, list[str]] = {}
    for name in todo:
        modules.setdefault(load().module_of(name).name, []).append(name)
    for number, (module_name, programs) in enumerate(modules.items(), start=1):
        module = load().modules[module_name]
        with _lock(module):
            still = missing(programs)
            if still:
                _build(module, still, f"[{number}/{len(modules)}] {module.name}", progress)
    return {name: _place(name) for name in wanted}


@contextmanager
def _lock(module: Module) -> Iterator[None]:
    folder = cache_folder() / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f".{module.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _flags(module: Module) -> list[str]:
    tags = ["-tags", ",".join(module.tags)] if module.tags else []
    return ["-trimpath", *tags]


def _build(module: Module, names: list[str], title: str, progress: Progress) -> None:
    since = time.monotonic()
    target = _folder(module)
    target.mkdir(parents=True, exist_ok=True)
    packages = [module.binaries[name] for name in names]
    clean = environment(cgo=module.cgo, release=module.go)
    progress.say(f"{title}: {', '.join(names)}")
    total = _stale(module, packages, clean)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as scratch:
        command = ["go", "build", "-v", *_flags(module), "-ldflags", module.ldflags]
        with subprocess.Popen(
            [*command, "-o", f"{scratch}/", *packages],
            cwd=module.folder,
            env=clean,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            tail = _follow(process, title, total, since, progress)
        if process.returncode != 0:
            lines = "".join(tail[-SHOWN:])
            raise LocalClusterError(
                f"building {', '.join(names)} ({module.name}) failed; modules that this machine "
                f"does not have yet come from `go env GOPROXY`:\n{lines}"
            )
        for name, package in zip(names, packages, strict=True):
            (Path(scratch) / _default_name(package)).rename(target / name)
    progress.say(f"{title}: built in {duration(time.monotonic() - since)}")


def _follow(
    process: "subprocess.Popen[str]", title: str, total: int, since: float, progress: Progress
) -> list[str]:
    lines: list[str] = []
    # `extend` appends each line as it arrives: the list's length is the progress.
    reader = threading.Thread(target=lines.extend, args=(process.stderr,), daemon=True)
    reader.start()
    while process.poll() is None:
        progress.step(f"{title}: packages", len(lines), total, since)
        reader.join(0.2)
    reader.join()
    return lines


def _stale(module: Module, packages: list[str], clean: dict[str, str]) -> int:
    """Count the packages that the build must compile, for the progress display."""
    response = subprocess.run(
        ["go", "list", *_flags(module), "-deps", "-f", "{{if .Stale}}x{{end}}", *packages],
        cwd=module.folder,
        env=clean,
        capture_output=True,
        text=True,
        check=False,
    )
    return response.stdout.count("x")


def _default_name(package: str) -> str:
    """Name what ``go build -o folder/`` calls a program: the last part that is not a version."""
    parts = package.split("/")
    if re.fullmatch(r"v\d+", parts[-1]):
        parts.pop()
    return parts[-1]
