"""What is left of installed wheels in the image."""

from pathlib import Path

from dev.images.site import leave_out


def test_programs_are_left_out_and_out_of_the_list_of_files(tmp_path: Path) -> None:
    """Their first line names this machine's Python, so their digests differ with the checkout."""
    information = tmp_path / "alembic-1.0.dist-info"
    for file in ("bin/alembic", "alembic/a,b.py", "alembic-1.0.dist-info/RECORD"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    kept = ['"alembic/a,b.py",sha256=abc,3', "alembic-1.0.dist-info/RECORD,,"]
    removed = ["bin/alembic,sha256=def,311", "alembic-1.0.dist-info/uv_cache.json,,"]
    record = information / "RECORD"
    record.write_text("\n".join([*removed, *kept]))
    leave_out(tmp_path)
    assert record.read_text().splitlines() == kept
    assert not (tmp_path / "bin").exists()
