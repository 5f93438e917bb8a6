"""Under which licences the parts of an image are: their texts, for the image, and their names."""

import re
import shutil
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution
from pathlib import Path
from typing import Final

from dev.cluster.binaries import environment
from dev.images.commands import run
from dev.images.errors import ImageError
from dev.images.release import ROOT

FOLDER: Final = Path("usr", "share", "licenses")
"""Folder of the texts in an image, but for those of Debian's packages (`usr/share/doc`)."""
TEXTS: Final = re.compile(r"(licen[cs]e|copying|notice|patents)([-._].*)?", re.IGNORECASE)
"""Names of files with them."""
MARKS: Final = (
    ("Apache-2.0", ("Apache License", "Version 2.0")),
    ("MPL-2.0", ("Mozilla Public License", "2.0")),
    ("BSD-3-Clause", ("Redistributions of source code must retain", "endorse or promote")),
    ("BSD-2-Clause", ("Redistributions of source code must retain",)),
    ("ISC", ("Permission to use, copy, modify, and",)),
    ("MIT", ("Permission is hereby granted, free of charge",)),
    ("CC0-1.0", ("CC0 1.0 Universal",)),
    ("PSF-2.0", ("PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2",)),
)
"""SPDX identifiers, and what a text of each has; the first that fits counts."""
SHORT: Final = 60
"""Characters of what a distribution calls its licence, and not its whole text."""
Licences = list[dict[str, object]]
"""As a component of CycloneDX has them."""


def of_texts(texts: Iterable[str]) -> Licences:
    """Return the licences that texts are of; those that are not known are left out."""
    found = {name for text in texts for name in _named(" ".join(text.split()))}
    return [{"license": {"id": name}} for name in sorted(found)]


def of_debian(package: str, text: str) -> Licences:
    """Return the licences of a package by its copyright file, in Debian's words (DEP-5).

    One that is not written in that form is only named.
    """
    found = set(re.findall(r"^License: *(\S.*?) *$", text, re.MULTILINE))
    named: Licences = [{"license": {"name": name}} for name in sorted(found)]
    return named or [{"license": {"name": f"see /usr/share/doc/{package}/copyright"}}]


def of_distribution(found: Distribution) -> Licences:
    """Return the licences of a distribution of Python."""
    metadata = found.metadata
    if expression := metadata.get_all("License-Expression"):
        return [{"expression": expression[0]}]
    files = (each for each in found.files or () if TEXTS.fullmatch(each.name))
    if named := of_texts(each.read_text("utf-8") for each in files):
        return named
    said = (metadata.get_all("License") or [""])[0]
    classified = [
        each.rpartition(" :: ")[2]
        for each in metadata.get_all("Classifier") or ()
        if each.startswith("License ::")
    ]
    names = [said] if 0 < len(said) < SHORT else classified
    return [{"license": {"name": name}} for name in names]


def write_own(root: Path) -> None:
    """Write our own licence into the root of an image."""
    place = root / FOLDER / "cloister"
    place.mkdir(parents=True)
    shutil.copy(ROOT / "LICENSE", place)


def write_modules(
    used: Iterable[tuple[str, str]], places: Mapping[tuple[str, str], Path], root: Path
) -> dict[tuple[str, str], Licences]:
    """Write the licences of Go modules into the root of an image, and return their names.

    Parameters
    ----------
    used
        Path and version of each; `stdlib` is Go's own library.
    places
        As `module_folders` returns them.

    Raises
    ------
    ImageError
        When one has none: then nobody may pass it on.
    """
    found = {}
    for name, version in used:
        place = places.get((name, version))
        files = sorted(place.iterdir()) if place is not None else []
        texts = [each for each in files if each.is_file() and TEXTS.fullmatch(each.name)]
        if not texts:
            raise ImageError(f"the Go module {name} {version} has no file with its licence")
        to = root / FOLDER / f"{name}@{version}"
        to.mkdir(parents=True)
        for text in texts:
            shutil.copyfile(text, to / text.name)
        found[name, version] = of_texts(each.read_text("utf-8", "replace") for each in texts)
    return found


def module_folders(module: Path, package: str, architecture: str) -> dict[tuple[str, str], Path]:
    """Return the folder of each Go module that a program is made of, and of Go's own library.

    Parameters
    ----------
    module
        Folder of the module that the program is built in.
    """
    passed = environment() | {"GOARCH": architecture}
    each = "{{.Path}}\t{{.Version}}\t{{.Dir}}"
    shown = (
        f"{{{{with .Module}}}}{{{{with .Replace}}}}{each}{{{{else}}}}{each}{{{{end}}}}{{{{end}}}}"
    )
    listed = run(["go", "list", "-deps", "-f", shown, package], cwd=module, environment=passed)
    rows = (line.split("\t") for line in listed.decode().splitlines() if line)
    found = {(name, version): Path(folder) for name, version, folder in rows}
    own = run(["go", "env", "GOROOT", "GOVERSION"], cwd=module, environment=passed)
    place, version = own.decode().split()
    return found | {("stdlib", version.removeprefix("go")): Path(place)}


def _named(text: str) -> Iterable[str]:
    """Yield the licence of a text, blanks folded."""
    for name, marks in MARKS:
        if all(mark in text for mark in marks):
            yield name
            return
