"""What a machine must have for a source, at the start of both programs."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from cloister_api.commands.serve import api
from cloister_clients.settings import SettingsError
from cloister_clients.sources import SourceSettings, check_prerequisites
from cloister_operator.commands.run import operator

HTTPS = {"kind": "git", "base": "https://git.example.com"}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a folder of programs, and no others."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def provide(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text("#!/bin/false\n")
        (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("there", "missing"),
    [([], "git"), (["git"], "prlimit"), (["git", "prlimit"], "ssh")],
)
def test_a_missing_program_is_named(programs: Path, there: list[str], missing: str) -> None:
    provide(programs, *there)
    settings = SourceSettings.model_validate(
        {"kind": "git", "base": "ssh://git@git.example.com/x", "known_hosts_file": "/dev/null"}
    )
    sentence = rf"sources\.base is ssh://\S+, which need the program {missing}: install the package"
    with pytest.raises(SettingsError, match=sentence):
        check_prerequisites(settings)


def test_only_what_the_source_uses_is_needed(programs: Path) -> None:
    check_prerequisites(SourceSettings.model_validate({"kind": "github"}))
    provide(programs, "git", "prlimit")
    check_prerequisites(SourceSettings.model_validate(HTTPS))


@pytest.mark.parametrize("setting", ["tokenFile", "sshKeyFile", "knownHostsFile", "caFile"])
def test_a_missing_file_is_named_by_its_setting(
    programs: Path, tmp_path: Path, setting: str
) -> None:
    provide(programs, "git", "prlimit")
    settings = SourceSettings.model_validate({**HTTPS, setting: tmp_path / "none"})
    with pytest.raises(SettingsError) as caught:
        check_prerequisites(settings)
    assert str(caught.value) == (
        f"sources.{setting}: {tmp_path / 'none'}: No such file or directory; "
        "provide the file, or correct the setting"
    )


OPERATOR = {
    "containersDomain": "containers.example.com",
    "shimImage": f"registry.example/shim@sha256:{'0' * 64}",
    "guestImage": f"registry.example/guest@sha256:{'0' * 64}",
    "sources": {"kind": "github"},
}


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"sources": HTTPS}, "the program git"),
        ({"registry": {"caFile": "/nowhere/ca"}}, "registry.caFile: /nowhere/ca: No such file"),
        (
            {"apiAddress": "https://api.example.com", "apiAuthorities": "/nowhere/ca"},
            "apiAuthorities: /nowhere/ca: No such file",
        ),
        (
            {"domains": {"target": "dns.example.com", "installationKeyFile": "/nowhere/key"}},
            "domains.installationKeyFile: /nowhere/key: No such file",
        ),
        (
            {"domains": {"target": "dns.example.com", "installationKeyFile": "/dev/null"}},
            "domains.installationKeyFile: /dev/null holds 0 bytes",
        ),
    ],
)
def test_the_operator_does_not_start_without_what_it_needs(
    programs: Path, tmp_path: Path, more: dict[str, Any], named: str
) -> None:
    path = tmp_path / "operator.yaml"
    path.write_text(yaml.safe_dump(OPERATOR | more))
    result = CliRunner().invoke(operator, ["--config", str(path)])
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert named in result.output


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"sources": HTTPS}, "the program git"),
        ({"registry": {"caFile": "/nowhere/ca"}}, "registry.caFile: /nowhere/ca: No such file"),
    ],
)
def test_the_api_does_not_start_without_what_it_needs(
    programs: Path, tmp_path: Path, more: dict[str, Any], named: str
) -> None:
    path = tmp_path / "api.yaml"
    least = {"sources": {"kind": "github"}, "ledger": {"path": "l", "keyMaterial": "k"}}
    path.write_text(yaml.safe_dump(least | more))
    result = CliRunner().invoke(api, ["--config", str(path)])
    assert result.exit_code == 1
    assert named in result.output
