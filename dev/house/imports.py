"""Check that importing a module reads no environment variable and needs none.

`check` starts this module in a process with an empty environment; there it imports every module
of the packages and reports each whose top level reads a variable.
"""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from typing_extensions import override

from dev.house.finding import Finding
from dev.house.layout import SOURCE_ROOTS

PACKAGES = ("cloister_api", "cloister_clients", "cloister_crds", "cloister_operator")
"""Packages whose modules are imported."""


def modules(root: Path) -> Iterator[tuple[str, Path]]:
    """Return every module of the packages with its file, except ``__main__``, which would run."""
    for folder in SOURCE_ROOTS:
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root / folder).with_suffix("").parts
            if parts[-1] == "__main__" or "versions" in parts or "env" in parts:
                # Migrations are read by Alembic, not imported by name.
                continue
            names = parts[:-1] if parts[-1] == "__init__" else parts
            if names:
                yield ".".join(names), path.relative_to(root)


def check(root: Path) -> list[Finding]:
    """Import every module in an empty environment."""
    places = dict(modules(root))
    result = subprocess.run(
        [sys.executable, "-m", "dev.house.imports", *places],
        cwd=root,
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        return [Finding(Path("dev/house/imports.py"), 0, result.stderr.strip())]
    troubles: dict[str, str] = json.loads(result.stdout)
    return [Finding(places[name], 0, trouble) for name, trouble in sorted(troubles.items())]


class _Watched(dict[str, str]):
    """An empty environment that records which modules of the project read it."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: dict[str, str] = {}

    def _note(self, key: object) -> None:
        """Record the reading module; reads by libraries on its behalf do not count."""
        frame = sys._getframe(2)  # noqa: SLF001 - the only way to see the reader
        while frame.f_back is not None and frame.f_globals.get("__name__") == "os":
            frame = frame.f_back
        name = frame.f_globals.get("__name__", "")
        if name.split(".")[0] in PACKAGES:
            self.readers.setdefault(name, f"reads {key} when imported; read it when called")

    @override
    def __getitem__(self, key: str) -> str:
        self._note(key)
        return super().__getitem__(key)

    @override
    def __contains__(self, key: object) -> bool:
        self._note(key)
        return super().__contains__(key)

    @override
    def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override]  # one signature is enough here
        self._note(key)
        return super().get(key, default)


def _watch(names: list[str]) -> dict[str, str]:
    """Import all modules and return the problem of each that has one."""
    watched = _Watched()
    # Both os.getenv and os.environ.get read it.
    os.environ = watched  # type: ignore[assignment]  # noqa: B003 - a mapping is sufficient
    troubles: dict[str, str] = {}
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - whatever an import raises is the finding
            troubles[name] = f"cannot be imported in an empty environment: {error!r}"
    return {**watched.readers, **troubles}


if __name__ == "__main__":
    print(json.dumps(_watch(sys.argv[1:])))
