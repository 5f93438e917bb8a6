"""``cloister config diff``: files, measurements and releases, in three forms."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from cloister_cli.config import config
from cloister_crds.config import parse
from tests.support.servers.git import Repositories

FILE = Path(__file__).parents[2] / "data/config/valid/minimal.yml"


def run(*words: str | Path) -> Result:
    """Run the command."""
    return CliRunner().invoke(config, ["diff", *map(str, words)])


def other(tmp_path: Path) -> Path:
    """Write a file that differs in two fields."""
    file = tmp_path / "service-config.yml"
    file.write_text(FILE.read_text().replace("cpus: 2", "cpus: 3"))
    return file


def measured(tmp_path: Path, **release: str) -> Path:
    """Write a measurement as the API returns it."""
    document = {
        "version": "cloister.dev/measurement/v2",
        "configDigest": parse(FILE.read_bytes()).digest,
        "gpus": 0,
    }
    path = tmp_path / "measurement.json"
    path.write_text(json.dumps({**release, "document": document}))
    return path


def test_equal_files_differ_in_nothing() -> None:
    result = run(FILE, FILE)
    assert (result.exit_code, result.output.splitlines()[0]) == (0, "Nothing differs.")


def test_each_form_has_the_changes(tmp_path: Path) -> None:
    result = run(FILE, other(tmp_path))
    assert result.exit_code == 1
    assert "  ~ cpus: 2 -> 3" in result.output
    assert (
        "| <code>cpus</code> | <code>2</code> | <code>3</code> |"
        in run(FILE, other(tmp_path), "--format", "markdown").output
    )
    found = json.loads(run(FILE, other(tmp_path), "--format", "json").output)
    assert {"part": "file", "field": "cpus", "before": "2", "after": "3"} in found["changes"]
    assert found["not_compared"] == ["request", "measurement"]


def test_measurements_are_compared_with_each_other(tmp_path: Path) -> None:
    one = measured(tmp_path)
    document = json.loads(one.read_text())["document"]
    two = tmp_path / "document.json"
    two.write_text(json.dumps({**document, "gpus": 8}))
    result = run(one, two)
    assert result.exit_code == 1, result.output
    assert "Measurement:\n  ~ gpus: 0 -> 8" in result.output


def test_a_serving_release_is_compared_with_another_tag(tmp_path: Path) -> None:
    repositories = Repositories(tmp_path / "repositories")
    repository = repositories.create("acme/web")
    repository.release("v1.0.0", FILE.read_bytes())
    repository.release("v1.1.0", other(tmp_path).read_bytes())
    source = tmp_path / "source.yml"
    source.write_text(yaml.safe_dump({"kind": "git", "base": str(repositories.path)}))
    serving = measured(tmp_path, repo="acme/web", tag="v1.0.0")
    result = run(serving, "--to", "v1.1.0", "--source", source)
    assert result.exit_code == 1, result.output
    assert '  ~ tag: "v1.0.0" -> "v1.1.0"' in result.output
    assert "  ~ cpus: 2 -> 3" in result.output
    tags = run("--repo", "acme/web", "--from", "v1.0.0", "--to", "v1.1.0", "--source", source)
    assert "  ~ cpus: 2 -> 3" in tags.output
    moved = measured(tmp_path, repo="acme/web", tag="v1.1.0")
    result = run(moved, "--to", "v1.1.0", "--source", source)
    assert "the tag was moved" in result.output
    assert "cpus" not in result.output


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((FILE,), "name two sides"),
        ((FILE, FILE, "--to", "v1"), "name two sides"),
        ((FILE, "--to", "v1"), "--from and --to need --repo"),
        ((FILE, "/nowhere.yml"), "/nowhere.yml cannot be read: No such file"),
    ],
)
def test_what_cannot_be_compared_is_named(words: tuple[str | Path, ...], sentence: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert sentence in result.output


def test_an_invalid_file_says_why(tmp_path: Path) -> None:
    file = tmp_path / "service-config.yml"
    file.write_text("cpus: many\n")
    result = run(FILE, file)
    assert result.exit_code == 2
    assert "cpus" in result.output
