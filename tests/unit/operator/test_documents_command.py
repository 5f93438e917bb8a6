"""``cloister documents``: what cannot be used is named; the API tests compare what it makes."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from cloister_operator.commands.documents import documents

FILE = Path(__file__).parents[2] / "data/config/valid/minimal.yml"
DIGEST = f"sha256:{'0' * 64}"
SETTINGS = {"shimImage": f"r.invalid/shim@{DIGEST}", "guestImage": f"r.invalid/guest@{DIGEST}"}
HOST = {"apiVersion": "cloister.dev/v1alpha1", "kind": "Host", "metadata": {"name": "h"}}


def run(folder: Path, *words: str, settings: object = SETTINGS, file: Path = FILE) -> Result:
    (folder / "settings.yml").write_text(yaml.safe_dump(settings))
    (folder / "host.yml").write_text(yaml.safe_dump(HOST))
    given = (str(file), "--host", str(folder / "host.yml"))
    return CliRunner().invoke(
        documents, [*given, "--settings", str(folder / "settings.yml"), *words]
    )


@pytest.mark.parametrize("option", ["--ssh", "--without-tee"])
def test_what_debug_enclaves_alone_have_needs_debug(tmp_path: Path, option: str) -> None:
    refused = run(tmp_path, option)
    assert (refused.exit_code, "need --debug" in refused.output) == (2, True)


def test_a_setting_that_decides_nothing_here_is_refused(tmp_path: Path) -> None:
    refused = run(tmp_path, settings={**SETTINGS, "workers": 3})
    assert (refused.exit_code, "workers" in refused.output) == (2, True)


@pytest.mark.parametrize("words", [(), ("--cpu-tier", "3")])
def test_amounts_that_one_organization_is_offered_are_named(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    file = tmp_path / "file.yml"
    file.write_text(FILE.read_text().replace("cpus: 2", "cpus: 3"))
    refused = run(tmp_path, *words, file=file)
    # With the option the file is valid, and its registry is what fails.
    assert refused.exit_code == (2 if words else 1)


def test_an_invalid_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file.yml"
    file.write_text("cvm-version: 0.10.0\n")
    refused = run(tmp_path, file=file)
    assert (refused.exit_code, "is invalid: `cloister config check" in refused.output) == (1, True)


def test_a_registry_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    refused = run(tmp_path)
    assert refused.exit_code == 2
    assert refused.output.strip()
