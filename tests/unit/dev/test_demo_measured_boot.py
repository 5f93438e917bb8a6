"""The demo boots a measured machine only where everything for it is there."""

from pathlib import Path

import pytest

from dev.demo import measured_boot


def test_what_is_missing_is_named_and_nothing_is_fetched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lacking = ["ovmf"]
    monkeypatch.setattr(measured_boot, "missing_packages", lambda _: list(lacking))
    monkeypatch.setenv("CLOISTER_CACHE", str(tmp_path))
    assert measured_boot.missing_for_boot() == ["ovmf", "a kernel"]
    assert list(tmp_path.iterdir()) == []
    lacking.clear()
    kernel = tmp_path / "measured-boot" / "linux-image-1" / "boot" / "vmlinuz-1"
    kernel.parent.mkdir(parents=True)
    kernel.touch()
    assert measured_boot.missing_for_boot() == []
