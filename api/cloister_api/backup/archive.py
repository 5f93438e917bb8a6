"""The archive: files of JSON lines, the ledger, and at the end a manifest with SHA-256 sums."""

import hashlib
import io
import json
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import IO, Final, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from cloister_api.backup.collection import Lines
from cloister_api.backup.contents import KEPT_KINDS, SYSTEM_SECRETS, Body

FORMAT: Final = 1
"""Form of the archive; it changes when an older release could not restore it."""
MANIFEST: Final = "manifest.json"
LEDGER: Final = "ledger.db"
"""File with the ledger."""
CHUNK: Final = 1024**2
"""Bytes that are in memory at a time."""
LARGEST_MANIFEST: Final = 1024**2


class ArchiveError(Exception):
    """The archive cannot be used; the message says why."""


class FileEntry(BaseModel):
    """One file of the archive."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: int
    """Size in bytes."""
    sha256: str
    """Digest, in hexadecimal."""
    objects: int | None = None
    """How many objects it holds; None if it is the ledger."""


class Manifest(BaseModel):
    """What an archive holds, and of which installation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = FORMAT
    """Form of the archive."""
    cloister: str
    """Version that wrote it."""
    kubernetes: str
    """Version of the API server."""
    created_at: datetime
    """When it was written, in UTC."""
    files: dict[str, FileEntry] = {}
    """Its files, by name."""


def file_name(name: str) -> str:
    """Return the name of a file of objects in the archive."""
    return f"objects/{name}.jsonl"


NAMES: Final = {file_name(name) for name in (*KEPT_KINDS, SYSTEM_SECRETS)} | {LEDGER}


def write_archive(
    raw: IO[bytes], manifest: Manifest, objects: Mapping[str, Lines], ledger: Path | None
) -> Manifest:
    """Write an archive, in one pass, and close the files of objects.

    Raises
    ------
    OSError
        When it cannot be written.
    """
    entries = {}
    with tarfile.open(fileobj=raw, mode="w|gz") as archive:
        for name, lines in objects.items():
            entry = _add(archive, file_name(name), lines.file, manifest.created_at)
            entries[file_name(name)] = entry.model_copy(update={"objects": lines.count})
            lines.file.close()
        if ledger is not None:
            with ledger.open("rb") as file:
                entries[LEDGER] = _add(archive, LEDGER, file, manifest.created_at)
        manifest = manifest.model_copy(update={"files": entries})
        text = io.BytesIO(manifest.model_dump_json(indent=1).encode())
        _add(archive, MANIFEST, text, manifest.created_at)
    return manifest


def _add(archive: tarfile.TarFile, name: str, file: IO[bytes], at: datetime) -> FileEntry:
    """Add a file, and return what the manifest says of it."""
    file.seek(0)
    digest = hashlib.sha256()
    size = 0
    while chunk := file.read(CHUNK):
        digest.update(chunk)
        size += len(chunk)
    file.seek(0)
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = size, int(at.timestamp()), 0o600
    archive.addfile(info, file)
    return FileEntry(size=size, sha256=digest.hexdigest())


class Archive:
    """An archive that was read and proven; its files are such that only this process sees them."""

    def __init__(
        self, manifest: Manifest, digest: str, files: dict[str, IO[bytes]], opened: ExitStack
    ) -> None:
        self.manifest = manifest
        """The manifest."""
        self.digest = digest
        """Digest of the manifest, and by it of the whole archive."""
        self._files = files
        self._opened = opened

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read an archive, and compare every file with its sum.

        Raises
        ------
        ArchiveError
            When it is damaged, or written by a release that does more.
        """
        with ExitStack() as opened:
            try:
                files = _unpack(path, opened)
            except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
                reason = getattr(error, "strerror", None) or str(error)
                raise ArchiveError(f"{path} is damaged or no archive: {reason}") from error
            if MANIFEST not in files:
                raise ArchiveError(f"{path} is damaged: it has no {MANIFEST}, its last file")
            text = files.pop(MANIFEST)[0].read(LARGEST_MANIFEST)
            manifest = _manifest(path, text)
            found = {name: (each.size, each.sha256) for name, (_, each) in files.items()}
            wanted = {name: (each.size, each.sha256) for name, each in manifest.files.items()}
            for name in sorted(found.keys() | wanted.keys()):
                if found.get(name) != wanted.get(name):
                    raise ArchiveError(f"{path} is damaged: {name} is not what {MANIFEST} says")
            digest = hashlib.sha256(text).hexdigest()
            bare = {name: file for name, (file, _) in files.items()}
            return cls(manifest, digest, bare, opened.pop_all())

    def bodies(self, name: str) -> Iterator[Body]:
        """Yield the objects of a file."""
        file = self._files[file_name(name)]
        file.seek(0)
        for line in file:
            yield json.loads(line)

    def write_ledger(self, path: Path) -> None:
        """Write the ledger into a new file.

        Raises
        ------
        OSError
            When it cannot be written.
        """
        source = self._files[LEDGER]
        source.seek(0)
        with path.open("xb") as file:
            path.chmod(0o600)
            while chunk := source.read(CHUNK):
                file.write(chunk)


def _unpack(path: Path, opened: ExitStack) -> dict[str, tuple[IO[bytes], FileEntry]]:
    """Copy the files of an archive, with their sums."""
    files: dict[str, tuple[IO[bytes], FileEntry]] = {}
    with tarfile.open(path, "r|gz") as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is None or member.name not in {*NAMES, MANIFEST}:
                raise tarfile.TarError(f"{member.name} does not belong into it")
            file = opened.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack is one
            digest = hashlib.sha256()
            while chunk := content.read(CHUNK):
                digest.update(chunk)
                file.write(chunk)
            file.seek(0)
            entry = FileEntry(size=member.size, sha256=digest.hexdigest())
            files[member.name] = (file, entry)
    return files


def _manifest(path: Path, text: bytes) -> Manifest:
    """Read the manifest.

    Raises
    ------
    ArchiveError
        When it is none, or of a later form.
    """
    try:
        document = json.loads(text)
        form = document["format"]
        if form != FORMAT:
            raise ArchiveError(
                f"{path} has form {form}, written by cloister {document.get('cloister')}; this "
                f"version reads {FORMAT}: restore with that version"
            )
        return Manifest.model_validate(document)
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise ArchiveError(f"{path} is damaged: {MANIFEST} cannot be read") from error
