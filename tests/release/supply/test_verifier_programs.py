"""The programs ``cloister-verify`` of a release: one for each system, the same from any folder."""

import shutil
import subprocess
from pathlib import Path

import pytest

from dev.cluster import guest
from dev.images.tools import architecture
from dev.release.verifier import TARGETS, write_programs

pytestmark = [
    pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed"),
    pytest.mark.timeout(900),
]

MAGIC = {"linux": b"\x7fELF", "darwin": b"\xcf\xfa\xed\xfe"}
"""First bytes of programs: ELF, and Mach-O of 64 bits in little-endian order."""


def test_each_system_has_a_program_and_other_folders_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first := tmp_path / "first").mkdir()
    made = write_programs(first, "1.2.3")
    assert [path.name for path in made] == [
        f"cloister-verify-1.2.3-{system}-{machine}" for system, machine in TARGETS
    ]
    for path, (system, _) in zip(made, TARGETS, strict=True):
        assert path.read_bytes().startswith(MAGIC[system])
    (own,) = (path for path in made if path.name.endswith(f"linux-{architecture()}"))
    done = subprocess.run([own, "--unknown"], capture_output=True, text=True, check=False)
    assert (done.returncode, "--repo OWNER/NAME" in done.stderr) == (2, True)
    shutil.copytree(guest.MODULE, copy := tmp_path / "elsewhere" / "guest")
    monkeypatch.setattr(guest, "MODULE", copy)
    (second := tmp_path / "second").mkdir()
    again = write_programs(second, "1.2.3")
    assert [each.read_bytes() for each in again] == [each.read_bytes() for each in made]
