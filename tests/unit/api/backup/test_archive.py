"""The archive: what is read is what was written, or it is refused."""

import io
import json
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cloister_api.backup.archive import Archive, ArchiveError, Manifest, write_archive
from cloister_api.backup.collection import Lines

AT = datetime(2026, 11, 25, tzinfo=UTC)


def lines(*names: str) -> Lines:
    """Return objects."""
    found = Lines()
    for number, name in enumerate(names):
        at = f"2026-11-25T00:00:{59 - number}Z"
        found.add({"metadata": {"name": name, "uid": name, "creationTimestamp": at}})
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return an archive."""
    found = tmp_path / "backup.tar.gz"
    ledger = tmp_path / "copy.db"
    ledger.write_bytes(b"rows" * 100_000)
    manifest = Manifest(cloister="1.0.0", kubernetes="v1.36.3", created_at=AT)
    with found.open("wb") as raw:
        written = write_archive(raw, manifest, {"containers": lines("a", "b")}, ledger)
    assert written.files["objects/containers.jsonl"].objects == 2
    return found


def rewritten(path: Path, **changed: bytes | None) -> Path:
    """Write an archive again with other files."""
    changes = {name.replace("_", "."): content for name, content in changed.items()}
    with tarfile.open(path) as archive:
        files = {each.name: archive.extractfile(each) for each in archive.getmembers()}
        contents = {name: file.read() for name, file in files.items() if file is not None}
    with tarfile.open(path, "w:gz") as archive:
        for name, content in (contents | changes).items():
            if content is not None:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return path


def test_what_is_read_is_what_was_written(path: Path, tmp_path: Path) -> None:
    with Archive.read(path) as archive:
        names = [each["metadata"]["name"] for each in archive.bodies("containers")]
        assert names == ["a", "b"]
        assert names == [each["metadata"]["name"] for each in archive.bodies("containers")]
        archive.write_ledger(tmp_path / "ledger.db")
        digest = archive.digest
    assert (tmp_path / "ledger.db").read_bytes() == (tmp_path / "copy.db").read_bytes()
    with Archive.read(path) as again:
        assert again.digest == digest


def test_objects_are_sorted_by_their_creation() -> None:
    found = lines("a", "b", "c")
    found.sort()
    found.file.seek(0)
    names = [json.loads(line)["metadata"]["name"] for line in found.file]
    assert names == ["c", "b", "a"]
    found.file.close()


def test_a_cut_archive_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 200):
        path.write_bytes(whole[:length])
        with pytest.raises(ArchiveError, match="is damaged"):
            Archive.read(path)


def test_every_changed_file_is_refused(path: Path) -> None:
    rewritten(path, ledger_db=b"other rows")
    with pytest.raises(ArchiveError, match=r"ledger\.db is not what manifest\.json says"):
        Archive.read(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ledger_db": None}, r"ledger\.db is not what"),
        ({"manifest_json": None}, r"it has no manifest\.json"),
        ({"manifest_json": b"{}"}, r"manifest\.json cannot be read"),
        ({"manifest_json": b'{"format": 2, "cloister": "9.0.0"}'}, "form 2.*cloister 9.0.0"),
        ({"evil_sh": b"x"}, r"evil\.sh does not belong into it"),
    ],
)
def test_what_is_no_whole_archive_is_refused(
    path: Path, change: dict[str, bytes | None], said: str
) -> None:
    rewritten(path, **change)
    with pytest.raises(ArchiveError, match=said):
        Archive.read(path)


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("no archive")
    with pytest.raises(ArchiveError, match="damaged or no archive"):
        Archive.read(path)
