"""``cloister crds print``: the kinds of the installed package."""

import yaml
from click.testing import CliRunner

from cloister_cli.artifacts import crds
from cloister_crds.crd_manifests import manifests


def test_all_kinds_are_printed_as_one_stream() -> None:
    result = CliRunner().invoke(crds, ["print"])
    assert result.exit_code == 0
    printed = [one for one in yaml.safe_load_all(result.output) if one]
    assert printed == [yaml.safe_load(text) for text in manifests().values()]
    assert {one["kind"] for one in printed} == {"CustomResourceDefinition"}


def test_some_kinds() -> None:
    result = CliRunner().invoke(crds, ["print", "containers"])
    assert result.exit_code == 0
    (printed,) = (one for one in yaml.safe_load_all(result.output) if one)
    assert printed["metadata"]["name"] == "containers.cloister.dev"


def test_an_unknown_kind_is_a_usage_error() -> None:
    result = CliRunner().invoke(crds, ["print", "pods"])
    assert result.exit_code == 2
    assert "pods" in result.output
    assert "enclaves" in result.output
