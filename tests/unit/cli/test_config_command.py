"""``cloister config``: what it prints and how it ends."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cloister_cli.config import config

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests/data/config"


def run(*words: str | Path, given: bytes | None = None, width: int = 100) -> Result:
    """Run the command with these words."""
    environment = {"COLUMNS": str(width), "TERM": "dumb"}
    return CliRunner().invoke(config, [str(word) for word in words], given, env=environment)


def test_a_valid_file() -> None:
    result = run("validate", DATA / "valid/minimal.yml")
    assert result.exit_code == 0
    assert "minimal.yml is valid" in result.output.replace("\n", "")
    assert "sha256:" in result.output


def test_an_invalid_file_shows_place_field_code_remedy_and_excerpt() -> None:
    result = run("validate", DATA / "invalid/compose.yml")
    assert result.exit_code == 1
    lines = [line.rstrip() for line in result.output.splitlines()]
    at = next(n for n, line in enumerate(lines) if "containers[0].mem_limit" in line)
    assert lines[at].split() == ["18:7", "error", "UnknownField", "containers[0].mem_limit"]
    assert "write memory" in lines[at + 1]
    assert lines[at + 2].endswith("mem_limit: 1g")
    assert lines[at + 3].endswith("^")
    assert lines[at + 2].index("mem_limit") == lines[at + 3].index("^")
    assert "is invalid: 29 errors, 4 warnings" in result.output.replace("\n", " ")


def test_warnings_do_not_make_it_invalid() -> None:
    result = run("validate", DATA / "valid/accepted-with-warnings.yml")
    assert result.exit_code == 0
    assert "warning ScratchSpace containers[0].volumes[0]" in result.output
    assert "is valid: 35 warnings" in result.output.replace("\n", " ")


def test_placeholders_are_errors_of_a_release() -> None:
    result = run("validate", "--release", DATA / "valid/accepted-with-warnings.yml")
    assert result.exit_code == 1
    assert "error PlaceholderDigest containers[0].image" in result.output


def test_strict_rules_can_be_errors() -> None:
    file = DATA / "valid/old-version.yml"
    assert run("validate", file, "--strict-from", "0.7.5").exit_code == 1
    assert run("validate", file, "--strict-from", "0.7.6").exit_code == 0
    wrong = run("validate", file, "--strict-from", "soon")
    assert wrong.exit_code == 2
    assert "X.Y.Z" in wrong.output


def test_json() -> None:
    result = run("validate", "--json", DATA / "invalid/networks-too-old.yml")
    assert result.exit_code == 1
    verdict = json.loads(result.output)
    assert verdict["valid"] is False
    assert verdict["config"] is None
    assert verdict["digest"].startswith("sha256:")
    assert verdict["problems"][0] == {
        "field": "networks",
        "code": "VersionTooOld",
        "message": ("networks need cvm-version 0.10.0 or newer: raise it, or remove the networks"),
        "line": 5,
        "column": 3,
        "severity": "error",
    }


def test_json_of_a_valid_file() -> None:
    verdict = json.loads(run("validate", "--json", DATA / "valid/every-field.yml").output)
    assert verdict["valid"] is True
    assert verdict["problems"] == []
    assert verdict["config"]["containers"][0]["healthcheck"]["start_period"] == "PT1M30S"


SHARED_GPUS = (DATA / "valid/shared-gpus.yml").read_bytes()
"""Two containers with `gpus: all`."""


@pytest.mark.spec("42.32")
@pytest.mark.parametrize(
    ("gpu", "code", "sentence"),
    [
        ("{resource: nvidia.com/gpu}", 1, "Name a Host with gpu.deviceClass"),
        ("{deviceClass: gpu.nvidia.com}", 0, "is valid"),
        ("{deviceClass: gpu.nvidia.com, counts: [8]}", 1, "may have 8 GPUs"),
    ],
)
def test_a_host_is_asked_for_what_it_offers(
    gpu: str, code: int, sentence: str, tmp_path: Path
) -> None:
    host = tmp_path / "host.yml"
    host.write_text(
        "apiVersion: cloister.dev/v1alpha1\nkind: Host\nmetadata: {name: pool}\n"
        f"spec: {{gpu: {gpu}}}\n"
    )
    result = run("validate", "-", "--host", host, given=SHARED_GPUS, width=300)
    assert result.exit_code == code, result.output
    assert sentence in result.output
    shown = json.loads(run("validate", "-", "--host", host, "--json", given=SHARED_GPUS).output)
    assert shown["valid"] is (code == 0)
    assert [each["code"] for each in shown["problems"]] == ["GpusNotAvailable"] * code


def test_a_host_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    host = tmp_path / "host.yml"
    host.write_text("metadata: {name: pool}\nspec: {gpu: {type: H100}}\n")
    result = run("validate", "-", "--host", host, given=SHARED_GPUS)
    assert result.exit_code == 2
    assert "is not a Host" in result.output
    assert "set one of resource and deviceClass" in result.output


def test_explain_says_who_shares_gpus() -> None:
    lines = run("explain", "-", given=SHARED_GPUS, width=200).output.splitlines()
    shown = [" ".join(line.split()) for line in lines]
    for other in ("encoder", "decoder"):
        assert f"GPUs all, shared with {other}: needs a Host with gpu.deviceClass" in shown


def test_standard_input() -> None:
    result = run("validate", "-", given=(DATA / "valid/minimal.yml").read_bytes())
    assert result.exit_code == 0
    assert "- is valid" in result.output


def test_variables() -> None:
    file = DATA / "valid/every-field.yml"
    result = run("validate", file, "--variable", "OTHER=1")
    assert result.exit_code == 0
    assert "VariableUnset containers[0].env[1]" in result.output
    assert "VariableUnused variables.OTHER" in result.output
    assert "Variable" not in run("validate", file, "--variable", "LOG_LEVEL=debug").output
    assert run("validate", file, "--variable", "LOG_LEVEL").exit_code == 2


@pytest.mark.parametrize("name", ["missing.yml", "folder"])
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    result = run("validate", tmp_path / name)
    assert result.exit_code == 2
    assert "cannot be read" in result.stderr


def test_an_endless_file_is_left() -> None:
    result = run("validate", "--json", "/dev/zero")
    assert result.exit_code == 1
    verdict = json.loads(result.output)
    assert [one["code"] for one in verdict["problems"]] == ["FileTooLarge"]
    assert verdict["digest"] is None


def test_a_terminal_is_safe_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "evil.yml"
    file.write_bytes("cpus: 2 # \x9b31m\n\"\\e[31mx\": 1\nmemory: '\\e'\n".encode())
    result = run("validate", file)
    assert result.exit_code == 1
    assert "\x1b" not in result.output
    assert "\x9b" not in result.output


@pytest.mark.parametrize("width", [20, 40, 400])
def test_any_width_will_do(width: int) -> None:
    for path in sorted(DATA.glob("*/*.yml")):
        assert run("validate", path, width=width).exit_code == (path.parent.name == "invalid")


READY_WITHIN = (
    "then to be ready 1800 s by default (its progressDeadlineSeconds), and 2895 s for the slowest "
    "health check"
)


def test_explain() -> None:
    result = run("explain", DATA / "valid/every-field.yml", "--service", "harbour", width=200)
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    for line in (
        "version 0.14.12@sha256:5a0e1f6a2b7c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6",
        "processors 8",
        "memory 64 GiB",
        "network partners allowlist: api.example.com, cdn.example.com",
        "time to start 3600 s by default (the operator's pullDeadlineSeconds)",
        READY_WITHIN,
        "time to stop 30 s",
        "container gateway",
        "user 10001:10002",
        "processors at most 1.5",
        "memory at most 2 GiB",
        "shared memory 1 GiB",
        "capabilities NET_BIND_SERVICE",
        "root file system read-only",
        "/harbour/secrets/tls-key: secret, read-only",
        "/var/cache: scratch space cache, read-only",
        "/scratch: memory",
        "variables GREETING, WORKERS, RATIO, VERBOSE, EMPTY, SETTINGS",
        "at deploy time DOMAIN (the public host name), LOG_LEVEL",
        "secrets API_KEY",
        "restart unless-stopped; stopped by SIGQUIT, killed after 30 s",
        "every 10 s, 5 failures in a row after 90 s fail the deployment",
        "requests from outside on port 8080",
        "GPUs all, shared with trainer, helper: needs a Host with gpu.deviceClass",
        "GPUs number 0, 1, shared with Model_Server.1, helper: needs a Host with gpu.deviceClass",
        "GPUs 2, shared with Model_Server.1, trainer: needs a Host with gpu.deviceClass",
        "processes up to the limit of the Pod",
        "networks none: no connection to anything",
        (
            "root file system writable, on the node's disk; with the logs at most 10 GiB, or "
            "what the Host's sizing.ephemeralStorageMB says"
        ),
        "restart on-failure, at most 3 times; stopped by SIGTERM, killed after 10 s",
        "target gateway, port 8080",
        "all others 404",
        "key needed for /v1/*",
        "rate limit 20 per second, 40 in one burst",
    ):
        assert line in lines, line


def test_explain_below_0_10() -> None:
    result = run("explain", DATA / "valid/old-version.yml", width=200)
    assert "one for all containers (version below 0.10)" in result.output
    assert "shared with other containers" in result.output


def test_explain_an_invalid_file() -> None:
    result = run("explain", DATA / "invalid/shim.yml")
    assert result.exit_code == 1
    assert "UnknownContainer" in result.output


def test_explain_every_valid_file() -> None:
    for path in sorted(DATA.glob("valid/*.yml")):
        assert run("explain", path).exit_code == 0
    assert os.environ.get("COLUMNS") != "100"


def test_lines_are_counted_as_yaml_counts_them(tmp_path: Path) -> None:
    file = tmp_path / "odd.yml"
    file.write_bytes("\ufeff# one\r\n# two\u2028# not YAML's three\rcpus: 3\n".encode())
    lines = run("validate", file).output.splitlines()
    at = next(n for n, line in enumerate(lines) if "NotOffered" in line)
    assert lines[at + 2].rstrip().endswith("cpus: 3")
