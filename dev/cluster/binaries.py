"""Build the cluster's programs from their Go modules into a cache outside the checkout.

A folder per module and key (a hash of go.mod, go.sum, our sources, flags and the toolchain). The
parts and their versions are read from ``versions.toml``.
"""

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from dev.cluster.layout import LocalClusterError
from dev.cluster.processes import Progress, duration

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Module:
    """One Go module below ``modules/`` and the programs that it builds."""

    name: str
    binaries: dict[str, str]
    """Program name -> the Go package that is its main package."""
    version: str = ""
    """Version of the required module; "" = a program of this repository."""
    requires: str = ""
    """The Go module whose version is pinned; "" = a program of this repository."""
    tags: tuple[str, ...] = ()
    cgo: bool = False
    variables: tuple[str, ...] = ()
    """Variables set at link time, ``package.name=value``."""
    go: str = ""
    """The release of Go that it needs; "" = the one that builds everything else."""

    @property
    def folder(self) -> Path:
        """Folder of its go.mod."""
        return FOLDER / "modules" / self.name

    @property
    def ldflags(self) -> str:
        """The linker's flags: no symbol tables, and the variables."""
        return " ".join(["-s", "-w", *(f"-X {variable}" for variable in self.variables)])


@dataclass(frozen=True, slots=True)
class Versions:
    """The content of ``versions.toml``."""

    go: str
    modules: dict[str, Module]
    packages: dict[str, dict[str, str]]
    """Purpose -> Debian package -> the program or file that proves it is installed."""
    kind: dict[str, str] = field(default_factory=dict)

    @property
    def other_kubernetes(self) -> tuple[str, ...]:
        """Minor releases of Kubernetes of which there is an API server beside the usual one."""
        names = [name.partition("-") for name in self.modules]
        return tuple(release for kind, _, release in names if kind == "kubernetes" and release)

    def module_of(self, binary: str) -> Module:
        """Find the module that builds a program.

        Parameters
        ----------
        binary
            Name of the program, such as ``kubelet``.

        Raises
        ------
        KeyError
            When no module builds it.
        """
        for module in self.modules.values():
            if binary in module.binaries:
                return module
        raise KeyError(f"no module of versions.toml builds {binary!r}")


def _module(name: str, table: dict[str, Any]) -> Module:
    version = table.get("version", "")
    major, _, rest = version.partition(".")
    names = {"version": version, "major": major, "minor": rest.partition(".")[0]}
    return Module(
        name=name,
        binaries=dict(table["binaries"]),
        version=version,
        requires=table.get("requires", ""),
        tags=tuple(table.get("tags", ())),
        cgo=table.get("cgo", False),
        variables=tuple(text.format(**names) for text in table.get("variables", ())),
        go=table.get("go", ""),
    )


@cache
def load() -> Versions:
    """Read the list of versions."""
    table = tomllib.loads((FOLDER / "versions.toml").read_text())
    return Versions(
        go=table["go"],
        modules={name: _module(name, entry) for name, entry in table["modules"].items()},
        packages=table["packages"],
        kind=table["kind"],
    )


PINNED = {
    "CGO_ENABLED": "0",
    "GO111MODULE": "on",
    "GOAMD64": "v1",
    "GOARM64": "v8.0",
    "GODEBUG": "",
    "GOENV": "off",
    "GOEXPERIMENT": "",
    "GOFIPS140": "off",
    "GOFLAGS": "-buildvcs=false -mod=readonly",
    "GOWORK": "off",
    "LC_ALL": "C",
}
"""What decides about the bytes of a program beside its sources and the release of Go."""
SOURCES = (
    *("GOCACHE", "GOMODCACHE", "GOPATH"),
    *("GOPROXY", "GONOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE", "GOINSECURE", "GOAUTH"),
)
"""Where this machine's Go fetches and keeps modules; go.sum says what their content is."""
PASSED = (
    *("PATH", "HOME", "TMPDIR", "XDG_CACHE_HOME", "GOTMPDIR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("SSL_CERT_DIR", "SSL_CERT_FILE"),
)
"""What a build needs of its machine: programs, folders and the way to the network."""


@cache
def go_version(release: str = "") -> str:
    """Return the release of Go that builds: the one of ``versions.toml``, and no other.

    Parameters
    ----------
    release
        The one that a module names for itself; "" = the one of everything else.

    Returns
    -------
    str
        Such as ``1.26.8``. A Go of another release fetches it from the module proxy.

    Raises
    ------
    LocalClusterError
        When Go is missing, cannot fetch the release, or is too old to (before 1.21).
    """
    wanted = release or load().go
    remedy = f"install Go {wanted} (https://go.dev/dl) and put it on PATH"
    if shutil.which("go") is None:
        raise LocalClusterError(f"Go is not installed, but the cluster is built with it: {remedy}")
    done = subprocess.run(
        ["go", "env", "GOVERSION"],
        capture_output=True,
        text=True,
        env=environment(release=wanted),
        check=False,
    )
    found = done.stdout.strip()
    if found != f"go{wanted}":
        said = found or done.stderr.strip()[-500:]
        raise LocalClusterError(f"what is built needs Go {wanted}, and this is {said}: {remedy}")
    return wanted


def environment(
    *, cgo: bool = False, machine: Mapping[str, str] | None = None, release: str = ""
) -> dict[str, str]:
    """Return the whole environment of a ``go`` command.

    Parameters
    ----------
    machine
        The machine's own environment; None = that of this process.
    release
        The release of Go; "" = the one of ``versions.toml``.
    """
    machine = os.environ if machine is None else machine
    passed = {name: machine[name] for name in PASSED if name in machine}
    pinned = PINNED | {"GOTOOLCHAIN": f"go{release or load().go}"}
    return passed | _sources(machine) | pinned | ({"CGO_ENABLED": "1"} if cgo else {})


def _sources(machine: Mapping[str, str]) -> dict[str, str]:
    """Ask Go where modules come from here: its answer includes the settings of `go env -w`."""
    # A folder of a module would make the question switch the release, or fail.
    done = subprocess.run(
        ["go", "env", "-json", *SOURCES],
        capture_output=True,
        text=True,
        cwd="/",
        env={**machine, "GOTOOLCHAIN": "local", "GOFLAGS": ""},
        check=False,
    )
    if done.returncode != 0:
        return {name: machine[name] for name in SOURCES if name in machine}
    told: dict[str, str] = json.loads(done.stdout)
    return {name: value for name, value in told.items() if value}


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
