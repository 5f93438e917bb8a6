"""Builds the released images: first for each architecture, then the index of each."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dev.cluster import guest
from dev.cluster.binaries import binary
from dev.cluster.processes import Progress
from dev.images import licences, sbom, site, tools
from dev.images.buildah import PLATFORMS, Store
from dev.images.debian import BaseSpec, read_lock
from dev.images.release import ROOT, Release
from dev.images.root import Root

BASE = "cloister-base"
"""The base of `cloister`; it is published so that a build can begin with it."""
IMAGES = ("cloister", "cloister-guest", "cloister-shim")
"""What an installation runs."""
DESCRIPTIONS = {
    "cloister": "Operator, API and command line of Cloister",
    "cloister-guest": "Cloister's program inside every enclave",
    "cloister-shim": "The proxy in front of the containers of an enclave",
}
BASE_TIME = 0
"""Time of the base: its digest follows from its packages alone."""


Bills = dict[tuple[str, str], list[sbom.Component]]
"""What each image is made of, by its name and architecture."""


@dataclass(frozen=True, slots=True)
class Build:
    """One build of all images.

    Attributes
    ----------
    target
        Folder of everything that is written.
    uv
        The program uv, of the Makefile's version.
    """

    target: Path
    uv: Path
    release: Release
    progress: Progress
    architectures: tuple[str, ...] = tuple(PLATFORMS)

    @property
    def layout(self) -> Path:
        """Folder of the built images (OCI image layout specification)."""
        return self.target / "oci"

    def run(self) -> dict[str, str]:
        """Build everything, and return the digest of each image's index.

        Raises
        ------
        ImageError, LocalClusterError
            When something cannot be built.
        """
        spec = BaseSpec.read()
        for folder in (self.layout, self.target / "store"):
            shutil.rmtree(folder, ignore_errors=True)
        own = site.wheel(self.uv, self.target / "wheel", self.release)
        store = Store(self.target / "store", binary("runc"))
        bills: Bills = {}
        # The one of this machine's architecture runs in the builds of the others.
        for architecture in sorted(
            self.architectures, key=lambda each: each != tools.architecture()
        ):
            root = Root.of(spec, architecture, self.progress)
            self._base(store, architecture, root)
            packages = read_lock(architecture)
            debian = sbom.debian_components(spec, packages, root.copyrights(packages))
            bills["cloister", architecture] = self._cloister(store, architecture, own, debian)
            bills["cloister-guest", architecture] = self._guest(store, architecture)
            bills["cloister-shim", architecture] = self._shim(store, architecture)
        indexes = {}
        for name in (BASE, *IMAGES):
            self.progress.say(f"writing {name}")
            members = {each: f"localhost/{name}-{each}" for each in self.architectures}
            indexes[name] = store.write_index(name, members, self.layout, name, self._labels(name))
            for architecture, digest in members_of(self.layout, indexes[name]).items():
                if components := bills.get((name, architecture)):
                    bill = self.target / "sbom" / f"{name}-{architecture}.cdx.json"
                    image = sbom.Image(name, architecture, digest)
                    sbom.write(bill, image, self.release, components)
        return indexes

    def _labels(self, name: str) -> dict[str, str]:
        """Return the labels of an image, which its index has as annotations; the base has none."""
        described = DESCRIPTIONS.get(name, "")
        return self.release.labels(name, described) if described else {}

    def _base(self, store: Store, architecture: str, root: Root) -> None:
        self._image(
            store, BASE, architecture, lambda to: root.link(to / "base.tar"), time=BASE_TIME
        )

    def _cloister(
        self, store: Store, architecture: str, own: Path, debian: list[sbom.Component]
    ) -> list[sbom.Component]:
        def fill(to: Path) -> list[sbom.Component]:
            site.install(self.uv, own, architecture, to / "site")
            shutil.copy(ROOT / "dev" / "images" / "bytecode.py", to)
            (to / "root" / "usr" / "bin").mkdir(parents=True)
            shutil.copy(ROOT / "images" / "cloister" / "cloister", to / "root" / "usr" / "bin")
            licences.write_own(to / "root")
            return [*debian, *sbom.python_components(self.uv, to / "site")]

        arguments = {
            "BASE": f"localhost/{BASE}-{architecture}",
            "BUILD_BASE": f"localhost/{BASE}-{tools.architecture()}",
            "BUILDPLATFORM": PLATFORMS[tools.architecture()],
            "TARGETPLATFORM": PLATFORMS[architecture],
        }
        return self._image(store, "cloister", architecture, fill, arguments=arguments)

    def _guest(self, store: Store, architecture: str) -> list[sbom.Component]:
        return self._program(store, "cloister-guest", "guest", ".", architecture)

    def _shim(self, store: Store, architecture: str) -> list[sbom.Component]:
        return self._program(store, "cloister-shim", "cloister-shim", guest.SHIM, architecture)

    def _program(
        self, store: Store, name: str, program: str, package: str, architecture: str
    ) -> list[sbom.Component]:
        """Build an image of one program of the guest's module, and return its parts."""

        def fill(to: Path) -> list[sbom.Component]:
            licences.write_own(to / "root")
            place = to / "root" / program
            built = guest.build(guest.MODULE, place, package, architecture=architecture)
            folders = licences.module_folders(guest.MODULE, package, architecture)
            return sbom.go_components(built, folders, to / "root")

        return self._image(store, name, architecture, fill)

    def _image(
        self,
        store: Store,
        name: str,
        architecture: str,
        fill: Callable[[Path], list[sbom.Component] | None],
        *,
        time: int | None = None,
        arguments: dict[str, str] | None = None,
    ) -> list[sbom.Component]:
        """Fill the folder that a Dockerfile copies from, build its image, and return its parts."""
        self.progress.say(f"building {name} for {architecture}")
        context = self.target / f"{name}-{architecture}"
        shutil.rmtree(context, ignore_errors=True)
        context.mkdir(parents=True)
        components = fill(context)
        _settle_modes(context)
        store.build(
            f"localhost/{name}-{architecture}",
            ROOT / "images" / name / "Dockerfile",
            context,
            architecture=architecture,
            time=self.release.time if time is None else time,
            arguments=arguments,
            labels=self._labels(name),
        )
        return components or []


def members_of(layout: Path, index: str) -> dict[str, str]:
    """Return the digest of each architecture's image below an index of a layout."""
    found = json.loads((layout / "blobs" / index.replace(":", "/")).read_text())["manifests"]
    return {each["platform"]["architecture"]: each["digest"] for each in found}


def _settle_modes(folder: Path) -> None:
    """Make modes independent of this user's umask; a shared folder keeps its mode."""
    for path in (folder, *folder.rglob("*")):
        if path.is_symlink():
            continue
        mode = path.stat().st_mode
        if not mode & 0o1000:
            path.chmod(0o755 if path.is_dir() or mode & 0o100 else 0o644)
