"""What the image `cloister` has beside its base: wheels of `uv.lock` and one of ours."""

import csv
import os
import shutil
import sys
import zipfile
from pathlib import Path

from dev.images.commands import run
from dev.images.errors import ImageError
from dev.images.release import ROOT, Release

PYTHON = "3.13"
"""Python of the base."""
PLATFORMS = {"amd64": "x86_64-manylinux_2_28", "arm64": "aarch64-manylinux_2_28"}
"""Architecture of the image -> platform of its wheels."""
NOT_NEEDED = ("bin", ".lock", "*.dist-info/uv_cache.json", "*.dist-info/direct_url.json")
"""Programs whose first line names a Python of this machine, and what the installer remembers."""


def wheel(uv: Path, folder: Path, release: Release) -> Path:
    """Build our own wheel into a folder.

    Raises
    ------
    ImageError
        When it cannot be built.
    """
    shutil.rmtree(folder, ignore_errors=True)
    run(
        [uv, "build", "--quiet", "--wheel", "--out-dir", folder],
        cwd=ROOT,
        environment=os.environ | {"SOURCE_DATE_EPOCH": str(release.time)},
    )
    (built,) = folder.glob("*.whl")
    return built


def install(uv: Path, own: Path, architecture: str, target: Path) -> None:
    """Install the locked wheels of an architecture, and ours, into an empty folder.

    Raises
    ------
    ImageError
        When a wheel is missing for the architecture, or is not the one of `uv.lock`.
    """
    if architecture not in PLATFORMS:
        known = ", ".join(PLATFORMS)
        raise ImageError(f"{architecture}: no wheels are locked for it; write one of {known}")
    shutil.rmtree(target, ignore_errors=True)
    exported = ["export", "--quiet", "--frozen", "--all-extras", "--no-dev", "--no-emit-project"]
    requirements = target.with_name("requirements.txt")
    requirements.parent.mkdir(parents=True, exist_ok=True)
    requirements.write_bytes(run([uv, *exported], cwd=ROOT))
    run(
        [
            *(uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", target),
            *("--python-version", PYTHON, "--python-platform", PLATFORMS[architecture]),
            *("--only-binary", ":all:", "--no-deps", "--require-hashes", "--link-mode", "copy"),
            *("--requirements", requirements),
        ]
    )
    with zipfile.ZipFile(own) as archive:
        archive.extractall(target)
    leave_out(target)


def leave_out(target: Path) -> None:
    """Remove what is not needed from a folder of installed wheels, and from their lists of files.

    The lists (RECORD, "Recording installed projects" of PyPA) have a digest of each program, in
    which the checkout's place is.
    """
    for pattern in NOT_NEEDED:
        for path in target.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for record in target.glob("*.dist-info/RECORD"):
        rows = csv.reader(record.read_text(encoding="utf-8").splitlines())
        with record.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows(row for row in rows if (target / row[0]).exists())
