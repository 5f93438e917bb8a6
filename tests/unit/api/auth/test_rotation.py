"""The rotation of the sealing key where the file of the key material is not written."""

from pathlib import Path

import pytest

from cloister_api.ledger.keys import rotation
from cloister_api.ledger.keys.key_material import KeyMaterial


def test_a_rotation_whose_new_key_was_put_into_the_file_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys.json"
    path.touch(mode=0o600)
    both = KeyMaterial(b"i" * 32, b"n" * 32, b"o" * 32)
    path.write_text(both.text(), encoding="utf-8")
    before = path.stat().st_ino
    # As a mounted Secret is; root could write into it all the same.
    monkeypatch.setattr(KeyMaterial, "replace", lambda *_: pytest.fail("the file was written"))

    assert rotation.begin(path) == both
    assert path.stat().st_ino == before
    assert KeyMaterial.read(path) == both
