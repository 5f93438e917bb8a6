"""What a store tells of its images, with one that the format's usual tools made."""

import hashlib
from pathlib import Path

import pytest

from cloister_clients.modelstore import StoreError, derived_salt, derived_uuid, read_store
from cloister_clients.modelstore.image import _data_blocks, _image_size

SAMPLE = Path(__file__).parents[4] / "operator/guest/internal/weights/models/testdata"
REPO = "example/tiny@0123456789abcdef0123456789abcdef01234567"
MPK = (SAMPLE / "mpk").read_text().strip()
ROOT = MPK.split("_", maxsplit=1)[0]
NOTE = f"name: tiny\nrepo: {REPO}\nmpk: {MPK}\n"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Build a store with the sample."""
    (tmp_path / f"{ROOT}.mpk").write_bytes((SAMPLE / f"{ROOT}.mpk").read_bytes())
    (tmp_path / "README").write_text("not an image")
    return tmp_path


def test_salt_and_uuid_follow_from_the_origin() -> None:
    assert derived_salt(REPO) == hashlib.sha256(REPO.encode()).digest()
    assert str(derived_uuid(REPO)) == MPK.split("_")[2]


def test_an_image_is_listed_as_files_name_it(store: Path) -> None:
    (entry,) = read_store(store)
    assert (entry.mpk, entry.bytes, entry.name, entry.repo) == (MPK, 16384, None, None)


def test_a_note_tells_the_origin(store: Path) -> None:
    (store / f"{ROOT}.yml").write_text(NOTE)
    (entry,) = read_store(store)
    assert (entry.name, entry.repo) == ("tiny", REPO)


@pytest.mark.parametrize(
    "note",
    [
        NOTE.replace("@0", "@1"),
        NOTE.replace("_16384_", "_20480_"),
        "[]",
        "name: [",
        NOTE.replace("tiny\n", "1\n", 1),
    ],
    ids=["other commit", "other offset", "no map", "no YAML", "name of another type"],
)
def test_a_note_that_does_not_fit_is_refused(store: Path, note: str) -> None:
    (store / f"{ROOT}.yml").write_text(note)
    with pytest.raises(StoreError, match="note"):
        read_store(store)


def changed(store: Path, at: int) -> None:
    """Change one bit of the image."""
    path = store / f"{ROOT}.mpk"
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("at", "want"),
    [(16384, "no hash tree"), (16384 + 32, "no hash tree"), (20480, "its root hash is")],
)
def test_what_is_not_the_image_is_refused(store: Path, at: int, want: str) -> None:
    changed(store, at)
    with pytest.raises(StoreError, match=want):
        read_store(store)


def test_the_name_is_the_root_hash(store: Path) -> None:
    path = store / f"{ROOT}.mpk"
    other = path.rename(store / f"{'0' * 64}.mpk")
    with pytest.raises(StoreError, match=f"its root hash is {ROOT}; rename it"):
        read_store(store)
    other.rename(store / "tiny.mpk")
    with pytest.raises(StoreError, match=r"the name is not ROOTHASH\.mpk"):
        read_store(store)


def test_a_file_that_is_cut_off_is_refused(store: Path) -> None:
    path = store / f"{ROOT}.mpk"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StoreError, match="24575 bytes are not an image"):
        read_store(store)


def test_a_store_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        read_store(tmp_path / "none")


@pytest.mark.parametrize("blocks", [1, 2, 128, 129, 16384, 16385, 200_000_000])
def test_the_size_tells_where_the_data_ends(blocks: int) -> None:
    assert _data_blocks(_image_size(blocks)) == blocks
    assert _data_blocks(_image_size(blocks) + 1) is None
    assert _data_blocks(0) is None
