"""Bills of materials in CycloneDX 1.5: what each image holds, from the locks it was made of."""

import itertools
import json
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from dev.images import licences
from dev.images.commands import run
from dev.images.debian import BaseSpec, LockedPackage
from dev.images.errors import ImageError
from dev.images.release import AUTHORS, ROOT, Release, project_version

Component = dict[str, Any]
SPACE = uuid.UUID("3c5b9a0e-7d0f-5d0c-9a4b-4f1d2f6c8e11")
"""Namespace of serial numbers, which follow from the content."""


@dataclass(frozen=True, slots=True)
class Image:
    """The image of an architecture.

    Attributes
    ----------
    digest
        Of its manifest, ``sha256:…``.
    """

    name: str
    architecture: str
    digest: str


def write(path: Path, image: Image, release: Release, components: Iterable[Component]) -> None:
    """Write the bill of one image; the same content gives the same bytes."""
    name, digest = image.name, image.digest
    described = {
        "type": "container",
        "name": name,
        "version": release.version,
        "purl": f"pkg:oci/{name}@{_quoted(digest)}?arch={image.architecture}",
        "hashes": [{"alg": "SHA-256", "content": digest.removeprefix("sha256:")}],
        "supplier": {"name": AUTHORS},
    }
    listed = sorted(components, key=lambda each: each["purl"])
    content = json.dumps(listed, sort_keys=True)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": uuid.uuid5(SPACE, f"{name} {release.revision} {content}").urn,
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(release.time, UTC).isoformat(),
            "component": described,
            "supplier": {"name": AUTHORS},
        },
        "components": listed,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


def debian_components(
    spec: BaseSpec, packages: Iterable[LockedPackage], copyrights: Mapping[str, str]
) -> list[Component]:
    """Return the Debian packages of a base.

    Parameters
    ----------
    copyrights
        The copyright file of each, by its name.
    """
    return [
        {
            "type": "library",
            "name": each.name,
            "version": each.version,
            "purl": f"pkg:deb/debian/{_quoted(each.name)}@{_quoted(each.version)}"
            f"?arch={each.architecture}&distro={spec.suite}",
            "hashes": [{"alg": "SHA-256", "content": each.sha256}],
            "supplier": {"name": "Debian"},
            "licenses": licences.of_debian(each.name, copyrights[each.name]),
        }
        for each in packages
    ]


def python_components(uv: Path, site: Path) -> list[Component]:
    """Return the distributions that a folder of modules holds, as `uv.lock` knows them.

    Raises
    ------
    ImageError
        When one is there that `uv.lock` does not have in this version.
    """
    exported = ["export", "--quiet", "--frozen", "--all-extras", "--no-dev"]
    known = json.loads(run([uv, *exported, "--format", "cyclonedx1.5"], cwd=ROOT))
    locked = {(_plain(each["name"]), each["version"]): each for each in known["components"]}
    version = project_version()
    own = {"type": "application", "name": "cloister", "version": version}
    locked["cloister", version] = own | {"purl": f"pkg:generic/cloister@{version}"}
    return [_locked(locked, each) for each in distributions(path=[str(site)])]


def _locked(locked: dict[tuple[str, str], Component], found: Distribution) -> Component:
    name, version = found.metadata["Name"], found.version
    if (_plain(name), version) not in locked:
        raise ImageError(f"{name} {version} was installed, and uv.lock does not have it")
    component = locked[_plain(name), version]
    # Its other fields refer to a document of uv.
    made = {key: component[key] for key in ("type", "name", "version", "purl")}
    made["licenses"] = licences.of_distribution(found)
    if "externalReferences" not in component:
        return made | {"supplier": {"name": AUTHORS}}
    wheel = _wheel(found, component["externalReferences"])
    supplier = {"supplier": {"name": "Python Package Index"}}
    return made | supplier | {"hashes": wheel["hashes"], "externalReferences": [wheel]}


def _wheel(found: Distribution, references: Iterable[Component]) -> Component:
    """Return the one of the locked files that was installed, by the tags of both."""
    tags = set(re.findall(r"^Tag: (\S+)$", found.read_text("WHEEL") or "", re.MULTILINE))
    fitting = [each for each in references if tags & _tags(each["url"])]
    if len(fitting) != 1:
        raise ImageError(
            f"{found.name} {found.version}: {len(fitting)} wheels of uv.lock have its tags, not one"
        )
    return fitting[0]


def _tags(address: str) -> set[str]:
    """Return the tags in the name of a wheel ("Platform compatibility tags" of PyPA)."""
    if not address.endswith(".whl"):
        return set()
    parts = (each.split(".") for each in address.removesuffix(".whl").rsplit("-", 3)[1:])
    return {"-".join(each) for each in itertools.product(*parts)}


def go_components(
    program: Path, folders: Mapping[tuple[str, str], Path], root: Path
) -> list[Component]:
    """Return the modules that a Go program is made of, as it says itself.

    Parameters
    ----------
    folders
        As `licences.module_folders` returns them.
    root
        Root of its image, into which their licences are written.

    Raises
    ------
    ImageError
        When it is not a Go program, or a module lacks a licence.
    """
    lines = run(["go", "version", "-m", program]).decode().splitlines()
    modules: list[tuple[str, str]] = [("stdlib", lines[0].rpartition(" go")[2])]
    for line in lines[1:]:
        kind, *words = line.split()
        if kind == "=>":
            modules.pop()
        if kind in {"mod", "dep", "=>"} and words[1] != "(devel)":
            modules.append((words[0], words[1]))
    named = licences.write_modules(modules, folders, root)
    return [
        _module(path, version) | {"licenses": named[path, version]} for path, version in modules
    ]


def _module(path: str, version: str) -> Component:
    purl = f"pkg:golang/{path}@{_quoted(version)}"
    supplier = {"name": path.partition("/")[0] if "." in path else "go.dev"}
    return {
        "type": "library",
        "name": path,
        "version": version,
        "purl": purl,
        "supplier": supplier,
    }


def _plain(name: str) -> str:
    """Return the normal form of a distribution's name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _quoted(text: str) -> str:
    """Return a part of a package URL."""
    return text.replace("%", "%25").replace("+", "%2B").replace(":", "%3A")
