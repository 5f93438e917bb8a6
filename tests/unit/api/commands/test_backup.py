"""The commands of backup and restore: what is refused before anything is read or written."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from cloister_api.backup.archive import Manifest, write_archive
from cloister_api.commands.backup import backup, restore
from cloister_api.commands.ledger import ledger
from cloister_api.ledger.keys.key_material import KeyMaterial

AT = datetime(2026, 11, 25, tzinfo=UTC)


def archive(folder: Path, *, ledger: bool) -> Path:
    """Return an archive without objects."""
    path, copy = folder / f"{ledger}.tar.gz", folder / "copy.db"
    copy.write_bytes(b"rows")
    manifest = Manifest(cloister="1.0.0", kubernetes="v1.36.3", created_at=AT)
    with path.open("wb") as raw:
        write_archive(raw, manifest, {}, copy if ledger else None)
    return path


@pytest.mark.parametrize("options", [[], ["--no-ledger", "--config", "api.yml"]])
def test_a_backup_says_where_its_ledger_comes_from(tmp_path: Path, options: list[str]) -> None:
    path = tmp_path / "backup.tar.gz"
    done = CliRunner().invoke(backup, [str(path), *options])
    assert done.exit_code == 1
    assert "give one of --config, --ledger and --no-ledger" in done.output
    assert not path.exists()


def test_a_file_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "backup.tar.gz"
    path.write_text("of last week")
    done = CliRunner().invoke(backup, [str(path), "--no-ledger"])
    assert done.exit_code == 1
    assert "File exists" in done.output
    assert path.read_text() == "of last week"


def test_without_success_there_is_no_file(tmp_path: Path) -> None:
    path = tmp_path / "backup.tar.gz"
    missing = tmp_path / "kubeconfig"
    done = CliRunner().invoke(backup, [str(path), "--no-ledger", "--kubeconfig", str(missing)])
    assert done.exit_code == 1
    assert str(missing) in done.output
    assert not path.exists()


def test_the_ledger_of_an_archive_is_neither_forgotten_nor_expected_in_vain(
    tmp_path: Path,
) -> None:
    done = CliRunner().invoke(restore, [str(archive(tmp_path, ledger=True))])
    assert "give one of --config and --no-ledger" in done.output
    settings = tmp_path / "api.yml"
    settings.write_text(
        "ledger: {path: ledger.db, keyMaterial: keys.json}\n"
        "sources: {kind: git, base: /nonexistent}\n"
    )
    options = ["--config", str(settings)]
    done = CliRunner().invoke(restore, [str(archive(tmp_path, ledger=False)), *options])
    assert "the archive holds no ledger: leave --config out" in done.output


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path, ledger=True)
    path.write_bytes(path.read_bytes()[:-40])
    done = CliRunner().invoke(restore, [str(path), "--no-ledger"])
    assert done.exit_code == 1
    assert "is damaged" in done.output


def test_a_ledger_goes_through_pipes(tmp_path: Path) -> None:
    KeyMaterial.create(tmp_path / "keys.json")
    settings = []
    for name in ("source", "target"):
        path = tmp_path / f"{name}.yml"
        place = f"{{path: {name}.db, keyMaterial: keys.json}}"
        path.write_text(f"ledger: {place}\nsources: {{kind: git, base: /nonexistent}}\n")
        settings.append(str(path))
    written = CliRunner().invoke(ledger, ["backup", "-", "--config", settings[0]])
    assert written.stdout_bytes.startswith(b"SQLite format 3")
    assert "tables backed up" in written.stderr
    options = ["restore", "-", "--config", settings[1]]
    done = CliRunner().invoke(ledger, options, input=written.stdout_bytes)
    assert done.exit_code == 0, done.output
    assert "sums are the sums of events" in done.output
    assert (tmp_path / "target.db").exists()
    refused = CliRunner().invoke(ledger, options, input=b"other bytes")
    assert "is not a backup of a ledger" in refused.output
