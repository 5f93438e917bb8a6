"""Generated files that are missing, out of date or obsolete."""

from pathlib import Path

from dev.house import generated


def test_written_files_have_no_differences(tmp_path: Path) -> None:
    assert generated.write(tmp_path)
    assert generated.differences(tmp_path) == []
    assert generated.write(tmp_path) == []


def test_missing_changed_and_obsolete_files_are_found_and_repaired(tmp_path: Path) -> None:
    generated.write(tmp_path)
    folder = tmp_path / "crds" / "manifests" / "crds"
    (folder / "hosts.yaml").unlink()
    (folder / "secrets.yaml").write_text("kind: Secret\n")
    (folder / "dragons.yaml").write_text("kind: Dragon\n")
    reported = {finding.path.name: finding.message for finding in generated.differences(tmp_path)}
    assert reported.keys() == {"hosts.yaml", "secrets.yaml", "dragons.yaml"}
    assert all("make crds" in message for message in reported.values())
    generated.write(tmp_path)
    assert generated.differences(tmp_path) == []
