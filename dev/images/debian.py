"""Packages of Debian for the base image: resolved and verified by mmdebstrap, locked by hash."""

import hashlib
import os
import re
import subprocess
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from dev.cluster.requirements import debian_mirrors
from dev.images.errors import ImageError

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "images" / "base.toml"
LOCK = ROOT / "images" / "base.lock"
RENEW = "renew the lock with `make images-lock`"
ARCHIVES = "var/cache/apt/archives"
FIELDS = 4
"""Words of a line of the lock file."""
SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, order=True)
class LockedPackage:
    """A package of the lock file.

    Attributes
    ----------
    architecture
        Architecture of the image that it is for, also where the package is for all.
    sha256
        Of its .deb file, hex.
    """

    architecture: str
    name: str
    version: str
    sha256: str


@dataclass(frozen=True)
class BaseSpec:
    """What `images/base.toml` says."""

    suite: str
    sources: tuple[str, ...]
    architectures: tuple[str, ...]
    packages: tuple[str, ...]
    excluded: frozenset[str]
    only: dict[str, tuple[str, ...]]
    licences: tuple[str, ...]
    drop: tuple[str, ...]
    interpreters: tuple[str, ...]

    @classmethod
    def read(cls) -> "BaseSpec":
        """Read the file."""
        found = tomllib.loads(SPEC.read_text())
        suite, keyring = found["suite"], found["keyring"]
        signed, mirrors = (
            f"deb [signed-by={keyring}]",
            debian_mirrors({"Debian": found["mirror"], "Debian-Security": found["security"]}),
        )
        return cls(
            suite=suite,
            sources=(
                f"{signed} {mirrors['Debian']} {suite} main",
                f"{signed} {mirrors['Debian-Security']} {suite}-security main",
            ),
            architectures=tuple(found["architectures"]),
            packages=tuple(found["packages"]),
            excluded=frozenset(name for group in found["excluded"].values() for name in group),
            only={name: tuple(paths) for name, paths in found["paths"]["only"].items()},
            licences=tuple(found["paths"]["licences"]),
            drop=tuple(found["paths"]["drop"]),
            interpreters=tuple(found["paths"]["interpreters"]),
        )


def read_lock(architecture: str, path: Path = LOCK) -> tuple[LockedPackage, ...]:
    """Return the locked packages of an image's architecture.

    Raises
    ------
    ImageError
        When a line is not that of a package, or the architecture has no package.
    """
    found = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if len(words) != FIELDS or not SHA256.fullmatch(words[-1]):
            raise ImageError(
                f"{path.name}, line {number}: {line!r} is not an architecture, a package, "
                f"a version and a SHA-256; {RENEW}"
            )
        found.append(LockedPackage(*words))
    wanted = tuple(each for each in found if each.architecture == architecture)
    if not wanted:
        raise ImageError(f"{path.name} has no package for {architecture}; {RENEW}")
    return wanted


def renew(path: Path = LOCK) -> None:
    """Resolve the newest packages of every architecture, and write the lock file.

    Raises
    ------
    ImageError
        When the packages cannot be resolved.
    """
    spec = BaseSpec.read()
    rows = []
    for architecture in spec.architectures:
        with tempfile.TemporaryDirectory(prefix="cloister-debs-") as folder:
            debs = Path(folder, "debs")
            _download(spec, architecture, spec.packages, debs)
            found = sorted(_package(each, architecture) for each in debs.glob("*.deb"))
        rows += [
            f"{each.architecture} {each.name} {each.version} {each.sha256}"
            for each in found
            if each.name not in spec.excluded
        ]
    head = "# Written by `make images-lock`: architecture, package, version, SHA-256 of its file."
    path.write_text("\n".join([head, *rows]) + "\n")


def fetch(
    spec: BaseSpec, architecture: str, folder: Path, lock: Path = LOCK
) -> tuple[tuple[str, Path], ...]:
    """Fetch the locked packages into a folder, and return their names and files.

    Raises
    ------
    ImageError
        When a version is no longer on the mirror, or a file has another content.
    """
    locked = read_lock(architecture, lock)
    wanted = [f"{each.name}={each.version}" for each in locked]
    try:
        _download(spec, architecture, wanted, folder)
    except ImageError as error:
        raise ImageError(
            f"{error}; when the mirror no longer has a version of {lock.name}: {RENEW}"
        ) from error
    return check(locked, folder)


def check(locked: Sequence[LockedPackage], folder: Path) -> tuple[tuple[str, Path], ...]:
    """Return names and files of locked packages, when a folder has each of them unchanged.

    Raises
    ------
    ImageError
        When a file is missing, or is another one; names the packages.
    """
    files = {
        found: path
        for path in folder.glob("*.deb")
        for found in [_package(path, locked[0].architecture)]
    }
    wrong = [f"{each.name} {each.version}" for each in locked if each not in files]
    if wrong:
        raise ImageError(
            "these files of the mirror do not have the SHA-256 that is locked: "
            f"{', '.join(wrong)}; {RENEW} if you trust them"
        )
    return tuple((each.name, files[each]) for each in locked)


def _package(path: Path, architecture: str) -> LockedPackage:
    name, version, _ = path.stem.split("_")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return LockedPackage(architecture, name, unquote(version), digest)


def _download(spec: BaseSpec, architecture: str, wanted: Sequence[str], folder: Path) -> None:
    """Let mmdebstrap resolve, download and verify packages; its root is thrown away."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [
            "mmdebstrap",
            "--quiet",
            "--variant=extract",
            f"--architectures={architecture}",
            f"--include={','.join(wanted)}",
            "--skip=cleanup/apt,download/empty",
            # A path with blanks would be cut by the shell that runs the hook.
            f'--extract-hook=cp "$1"/{ARCHIVES}/*.deb "{folder}"',
            spec.suite,
            "/dev/null",
            *spec.sources,
        ],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"LC_ALL": "C"},
    )
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.startswith("E:")]
        raise ImageError(f"mmdebstrap: {'; '.join(said) or done.stderr.strip()[-500:]}")
