"""What this machine must have to build images."""

import os
import platform

import pytest

from dev.cluster import Progress
from dev.images import tools
from dev.images.errors import ImageError


def test_somebody_else_than_root_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ImageError, match=r"need root here: run this as root \(sudo\)"):
        tools.prepare(Progress(quiet=True))


def test_a_machine_without_a_base_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(ImageError, match="built on x86_64 or aarch64, and this is riscv64"):
        tools.architecture()
