"""The parts of the local cluster and their versions, read from ``versions.toml``.

Called by the builds, the checks of the machine and the kind path; it starts nothing.
"""

import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

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
