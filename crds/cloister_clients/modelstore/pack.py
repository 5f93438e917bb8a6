"""Makes an image of a directory with model weights, as the format's public tools do.

mkfs.erofs and veritysetup do the work: the same releases of both give the same bytes and so the
same root hash, which an auditor can check.
"""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import yaml

from cloister_clients.modelstore.image import (
    NOTE,
    SUFFIX,
    ModelImage,
    StoreError,
    derived_salt,
    derived_uuid,
    read_entry,
)
from cloister_crds.config.rules.images import BLOCK, NAME_PATTERN, REPO_PATTERN

__all__ = ["pack"]

_PACKAGES = {"mkfs.erofs": "erofs-utils", "veritysetup": "cryptsetup-bin"}


def pack(repo: str, directory: Path, store: Path, *, name: str | None = None) -> ModelImage:
    """Build an image and put it into a store.

    Parameters
    ----------
    directory
        The weights: all of it is packed into the image.
    store
        Directory of the store; it must exist.
    name
        Name of the model in configuration files; None means the model's part of `repo`.

    Returns
    -------
    ModelImage
        The image; the same weights replace themselves.

    Raises
    ------
    StoreError
        When an argument is wrong, a program is missing or fails, or the store cannot be written.
    """
    name = repo.partition("@")[0].rpartition("/")[2] if name is None else name
    if not re.fullmatch(REPO_PATTERN, repo):
        raise StoreError(f"{repo!r} is not owner/model@ and the commit's 40 hex digits")
    if not re.fullmatch(NAME_PATTERN, name):
        raise StoreError(f"{name!r} cannot be the name of a model: use letters, digits, . _ and -")
    for place, what in ((directory, "weights"), (store, "store")):
        if not place.is_dir():
            raise StoreError(f"{place} (the {what}) is not a directory")
    try:
        # Inside the store, so that the renames below are atomic on one file system.
        with tempfile.TemporaryDirectory(dir=store, prefix=".pack-") as scratch:
            image = Path(scratch) / "image"
            mpk = _make(repo, directory, image)
            final = store / f"{mpk.partition('_')[0]}{SUFFIX}"
            note = {"name": name, "repo": repo, "mpk": mpk}
            fresh = Path(scratch) / "note"
            fresh.write_text(yaml.safe_dump(note, sort_keys=False), encoding="utf-8")
            image.chmod(0o444)
            image.replace(final)
            # The note follows its image: a reader that finds it finds the image too.
            fresh.replace(final.with_suffix(NOTE))
    except OSError as error:
        raise StoreError(f"the store cannot be written: {error}") from error
    return read_entry(final)


def _make(repo: str, directory: Path, image: Path) -> str:
    """Write the file system and its hash tree; return ROOTHASH_OFFSET_UUID."""
    uuid = derived_uuid(repo)
    _run("mkfs.erofs", "--all-root", "-T0", f"-U{uuid}", str(image), str(directory))
    size = image.stat().st_size
    if size % BLOCK:
        raise StoreError(f"mkfs.erofs wrote {size} bytes, no multiple of {BLOCK}: use another one")
    output = _run(
        "veritysetup",
        "format",
        "--format=1",
        "--hash=sha256",
        f"--data-block-size={BLOCK}",
        f"--hash-block-size={BLOCK}",
        f"--data-blocks={size // BLOCK}",
        f"--salt={derived_salt(repo).hex()}",
        f"--uuid={uuid}",
        f"--hash-offset={size}",
        str(image),
        str(image),
    )
    found = re.search(r"^Root hash:\s+([0-9a-f]{64})$", output, re.MULTILINE)
    if found is None:
        raise StoreError("veritysetup did not print the root hash; use release 2.4 or newer")
    return f"{found[1]}_{size}_{uuid}"


def _run(program: str, *arguments: str) -> str:
    """Run a program of the system and return what it wrote."""
    # /usr/sbin is not on everybody's PATH.
    found = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        raise StoreError(f"{program} is not installed: install {_PACKAGES[program]} (Debian)")
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(  # noqa: S603 - a program of the system, by its whole path, no shell
        [found, *arguments], capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        raise StoreError(f"{program} failed: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout
