"""Nothing of the machine's own Go settings reaches a build."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dev.cluster.binaries import SOURCES, environment, load
from dev.cluster.guest import build

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")

POLLUTED = {
    "CC": "/bin/false",
    "CGO_CFLAGS": "-DOTHER",
    "CGO_ENABLED": "1",
    "GOAMD64": "v3",
    "GOARCH": "arm64",
    "GOARM64": "v9.0",
    "GODEBUG": "netdns=cgo",
    "GOEXPERIMENT": "nogreenteagc",
    "GOFIPS140": "latest",
    "GOFLAGS": "-race -tags=other -gcflags=all=-N",
    "GOOS": "windows",
    "GOTOOLCHAIN": "auto",
    "GOWORK": "/tmp/elsewhere/go.work",
}
"""Settings that change a program's bytes, or stop its build."""


def test_the_environment_of_a_build_is_the_same_on_a_polluted_machine() -> None:
    machine = dict(os.environ) | POLLUTED
    assert environment(machine=machine) == environment()
    assert environment()["GOTOOLCHAIN"] == f"go{load().go}"
    own = environment(machine=machine, release="1.99.1")
    assert own == environment() | {"GOTOOLCHAIN": "go1.99.1"}


def test_modules_come_from_where_the_machine_gets_them(tmp_path: Path) -> None:
    settings = tmp_path / "env"
    settings.write_text("GOPROXY=https://modules.example.test\nGOFLAGS=-race\n")
    found = environment(machine={**os.environ, "GOENV": str(settings)})
    assert found["GOPROXY"] == "https://modules.example.test"
    assert found["GOFLAGS"] == environment()["GOFLAGS"]
    assert "GOPROXY" in SOURCES


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """Write a module whose bytes would show each setting."""
    folder = tmp_path / "module"
    folder.mkdir()
    (folder / "go.mod").write_text("module example.org/small\n\ngo 1.26.0\n")
    (folder / "main.go").write_text(
        'package main\n\nimport "math/bits"\n\n'
        'func main() { println("small", bits.OnesCount(uint(len("small")))) }\n'
    )
    (folder / "other.go").write_text(
        '//go:build other\n\npackage main\n\nfunc init() { println("other") }\n'
    )
    return folder


def test_a_polluted_machine_builds_the_same_bytes(
    module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = build(module, tmp_path / "clean").read_bytes()
    with monkeypatch.context() as polluted:
        for name, value in POLLUTED.items():
            polluted.setenv(name, value)
        assert build(module, tmp_path / "polluted").read_bytes() == clean
    command = ("go", "build", "-trimpath", "-ldflags=-s -w -buildid=", "-o")
    inherited = {**os.environ, "GOAMD64": "v3", "CGO_ENABLED": "0", "GOFLAGS": "-tags=other"}
    where = tmp_path / "inherited"
    subprocess.run([*command, str(where), "."], cwd=module, env=inherited, check=True)
    assert where.read_bytes() != clean, "the settings of this test change nothing"
