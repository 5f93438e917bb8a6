"""Reads what images of a model store say of themselves.

Layout of an image (the format's public tools): a read-only file system, then the superblock and the
hash tree of dm-verity with SHA-256 and blocks of 4096 bytes. The salt is the SHA-256 of
``owner/model@commit``. The guest verifies every byte when an enclave starts; here only the top of
the tree is read, which shows whether a file has the right name.
"""

import hashlib
import re
import struct
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import yaml

from cloister_crds.config.rules.images import BLOCK, MPK_PATTERN, REPO_PATTERN

__all__ = [
    "SUFFIX",
    "ModelImage",
    "StoreError",
    "derived_salt",
    "derived_uuid",
    "read_entry",
    "read_store",
]

SUFFIX = ".mpk"
"""Suffix of an image; before it is the root hash."""
NOTE = ".yml"
"""Suffix of the note next to an image: the entry for configuration files."""
_DIGEST = 32
_SUPERBLOCK = struct.Struct("<8sII16s32sIIQH6x256s")
"""cryptsetup's on-disk superblock of dm-verity, version 1."""
_SIGNATURE = b"verity\0\0"
_NOTE_LIMIT = 4096


class StoreError(Exception):
    """Something in a store or on the way into it is wrong; says what, and the remedy."""


@dataclass(frozen=True, slots=True)
class ModelImage:
    """An image of a store."""

    path: Path
    """The file."""
    mpk: str
    """ROOTHASH_OFFSET_UUID, as configuration files name it."""
    name: str | None = None
    """Name of the model; None if there is no note next to the image."""
    repo: str | None = None
    """owner/model@commit; None if there is no note next to the image."""

    @property
    def bytes(self) -> int:
        """Bytes of data: about the memory that an enclave needs for the model."""
        return int(self.mpk.split("_")[1])


def derived_salt(repo: str) -> bytes:
    """Return the salt of the hash tree of a model, named owner/model@commit."""
    return hashlib.sha256(repo.encode()).digest()


def derived_uuid(repo: str) -> uuid.UUID:
    """Return the UUID of the image of a model, by the rule of the format's public tools."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"{repo}-inner")


def read_store(store: Path) -> tuple[ModelImage, ...]:
    """Read all images of a store.

    Returns
    -------
    tuple[ModelImage, ...]
        In the order of their names; other files are passed over.

    Raises
    ------
    StoreError
        When the directory or an image cannot be read, or an image is not what its name says.
    """
    try:
        found = sorted(path for path in store.iterdir() if path.suffix == SUFFIX)
    except OSError as error:
        raise StoreError(f"{store} cannot be read: {error.strerror or error}") from error
    return tuple(read_entry(path) for path in found)


def read_entry(path: Path) -> ModelImage:
    """Read one image.

    Raises
    ------
    StoreError
        When it cannot be read, has no hash tree, or is not what its name says.
    """
    root = path.name.removesuffix(SUFFIX)
    if not re.fullmatch("[0-9a-f]{64}", root):
        raise StoreError(f"{path.name}: the name is not ROOTHASH{SUFFIX}; rename the file")
    try:
        with path.open("rb") as file:
            mpk, salt = _identity(file, path, root)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}") from error
    name, repo = _read_note(path.with_suffix(NOTE), mpk, salt)
    return ModelImage(path=path, mpk=mpk, name=name, repo=repo)


def _identity(file: BinaryIO, path: Path, root: str) -> tuple[str, bytes]:
    """Return what an image is: its mpk and its salt."""
    size = file.seek(0, 2)
    data = _data_blocks(size)
    if data is None:
        raise StoreError(
            f"{path.name}: {size} bytes are not an image with its hash tree; pack it again"
        )
    file.seek(data * BLOCK)
    header = file.read(_SUPERBLOCK.size)
    signature, version, kind, identity, algorithm, *sizes, salted, salt = _SUPERBLOCK.unpack(header)
    expected = (_SIGNATURE, 1, 1, b"sha256", [BLOCK, BLOCK, data])
    if (signature, version, kind, algorithm.rstrip(b"\0"), sizes) != expected:
        raise StoreError(
            f"{path.name}: there is no hash tree of dm-verity with SHA-256 and blocks of {BLOCK} "
            "bytes behind its data; pack it again"
        )
    salt = salt[:salted]
    file.seek(0 if data == 1 else (data + 1) * BLOCK)
    top = hashlib.sha256(salt + file.read(BLOCK)).hexdigest()
    if top != root:
        raise StoreError(
            f"{path.name}: its root hash is {top}; rename it if that is what configuration files "
            "name, or pack it again"
        )
    return f"{root}_{data * BLOCK}_{uuid.UUID(bytes=identity)}", salt


def _data_blocks(size: int) -> int | None:
    """Return how many blocks of data an image of a size has; None if there is no such number."""
    low, high = 1, size // BLOCK
    while low < high:
        middle = (low + high) // 2
        if _image_size(middle) < size:
            low = middle + 1
        else:
            high = middle
    return low if low * BLOCK < size and _image_size(low) == size else None


def _image_size(data: int) -> int:
    """Return the bytes of an image with so many blocks of data."""
    per_block = BLOCK // _DIGEST
    blocks, level = data + 1, data
    while level > 1:
        level = -(-level // per_block)
        blocks += level
    return blocks * BLOCK


def _read_note(path: Path, mpk: str, salt: bytes) -> tuple[str | None, str | None]:
    """Read the note next to an image: name and origin of the model."""
    try:
        text = path.read_text(encoding="utf-8")[:_NOTE_LIMIT]
        note = yaml.safe_load(text)
    except FileNotFoundError:
        return None, None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise StoreError(f"{path}: the note cannot be read: {error}") from error
    name, repo = (note.get(key) if isinstance(note, dict) else None for key in ("name", "repo"))
    if (
        not isinstance(name, str)
        or not isinstance(repo, str)
        or note.get("mpk") != mpk
        or not re.fullmatch(MPK_PATTERN, mpk)
        or not re.fullmatch(REPO_PATTERN, repo)
        or derived_salt(repo) != salt
    ):
        raise StoreError(f"{path}: the note does not fit the image next to it; delete it")
    return name, repo
