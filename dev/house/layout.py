"""Rules for places and names of files."""

from collections.abc import Iterator
from pathlib import Path

from dev.house.finding import Finding

SOURCE_ROOTS = ("operator", "api", "crds")
"""Folders that hold packages and nothing else; the name of the first is the standard library's."""
ROOTS = (*SOURCE_ROOTS, "dev", "tests")
"""Folders with the project's Python."""
MOST_LOOSE = 15
"""Maximum of modules next to the sub-packages of a package."""
MOST_FLAT = 24
"""Maximum of modules of a package without sub-packages, such as one module per route."""
FORBIDDEN_NAMES = ("utils", "util", "helpers", "helper", "base", "common", "misc", "manager")
"""Names that do not describe a file's content."""
NOT_OURS = ("dev/demo/service",)
"""Folders that represent code of others, such as the demo's tenant."""


def python_files(root: Path) -> Iterator[Path]:
    """Return every Python file of the project, sorted."""
    for folder in ROOTS:
        for path in sorted((root / folder).rglob("*.py")):
            relative = path.relative_to(root).as_posix()
            if not relative.startswith(NOT_OURS) and "__pycache__" not in relative:
                yield path


def check(root: Path) -> list[Finding]:
    """Check names and places."""
    return sorted(
        {*_source_roots(root), *_large_packages(root), *_names(root), *_test_folders(root)}
    )


def _large_packages(root: Path) -> Iterator[Finding]:
    """Report packages with too many modules."""
    for folder in (*SOURCE_ROOTS, "tests/support"):
        for package in sorted((root / folder).rglob("__init__.py")):
            modules = [path for path in package.parent.glob("*.py") if path != package]
            nested = any(package.parent.glob("*/__init__.py"))
            most = MOST_LOOSE if nested else MOST_FLAT
            if len(modules) > most:
                kind = "next to its sub-packages" if nested else "and no sub-package"
                yield Finding(
                    package.parent.relative_to(root),
                    0,
                    f"{len(modules)} modules {kind}; {most} at most, sort them into sub-packages",
                )


def _source_roots(root: Path) -> Iterator[Finding]:
    """Report files that would make ``operator`` a package, and modules outside of any package."""
    for folder in SOURCE_ROOTS:
        for path in sorted((root / folder).glob("*.py")):
            place = path.relative_to(root)
            if path.name == "__init__.py":
                yield Finding(place, 0, f"{folder}/ is a folder of packages; remove this file")
            else:
                yield Finding(place, 0, "loose module; move it into a package")


def _names(root: Path) -> Iterator[Finding]:
    for path in python_files(root):
        place = path.relative_to(root)
        for part in (*place.parts[1:-1], path.stem):
            if part in FORBIDDEN_NAMES:
                yield Finding(
                    place,
                    0,
                    f"{part} does not describe the content; name the file after its subject",
                )


def _test_folders(root: Path) -> Iterator[Finding]:
    """Report packages among the tests; without them test files may share names."""
    for path in sorted((root / "tests").rglob("__init__.py")):
        place = path.relative_to(root)
        if place.parts[1] != "support" and len(place.parts) > 2:  # noqa: PLR2004 - tests/__init__.py
            yield Finding(place, 0, "test folders are not packages; remove this file")
