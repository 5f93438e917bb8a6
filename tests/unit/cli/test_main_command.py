"""``cloister``: commands are found in the installed packages."""

import ast
import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints, entry_points

import click
import pytest
from click.testing import CliRunner

from cloister_cli import main as module
from cloister_cli.main import Installed, Listed, main


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let three commands be installed: one that is there, one without its extra, one broken."""
    found = EntryPoints(
        [
            EntryPoint("config", "cloister_cli.config:config", module.GROUP),
            EntryPoint("api", "cloister_api:nothing", module.GROUP),
            EntryPoint("serve", "cloister_api_without_extra.serve:api", module.GROUP),
            EntryPoint("gone", "cloister_cli.gone:gone", module.GROUP),
            EntryPoint("number", "cloister_cli.config:INVALID", module.GROUP),
        ]
    )
    monkeypatch.setattr(module, "entry_points", found.select)


def test_help_lists_the_commands_that_are_installed() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for name in ("api", "config", "crds", "operator", "org", "admin-key"):
        assert f"\n  {name} " in result.output


def test_each_command_is_listed_as_it_describes_itself() -> None:
    def summaries(group: Installed) -> dict[str, str]:
        context = click.Context(group)
        commands = {name: group.get_command(context, name) for name in group.list_commands(context)}
        return {name: each.get_short_help_str() for name, each in commands.items() if each}

    listed = summaries(Listed())
    assert set(listed) == {entry.name for entry in entry_points(group=module.GROUP)}
    assert listed == summaries(Installed())


@pytest.mark.parametrize(
    ("words", "environment"),
    [
        (["--help"], {}),
        ([], {"_CLOISTER_COMPLETE": "bash_complete", "COMP_WORDS": "cloister ", "COMP_CWORD": "1"}),
    ],
)
def test_commands_are_listed_without_an_import(
    words: list[str], environment: dict[str, str]
) -> None:
    code = (
        "import sys; from cloister_cli.main import main\n"
        f"try: main({words!r}, prog_name='cloister')\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if name.startswith('cloister_')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    *output, modules = done.stdout.splitlines()
    assert [line for line in output if "admin-key" in line]
    packages = {"cloister_api", "cloister_api.commands", "cloister_operator"}
    packages |= {"cloister_operator.commands", "cloister_cli.doctor"}
    assert set(ast.literal_eval(modules)) == packages | {"cloister_cli", "cloister_cli.main"}


@pytest.mark.parametrize("package", ["cloister_api", "cloister_operator"])
def test_a_command_without_its_extra_is_listed_as_such(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module.LIBRARIES, package, "library_that_is_missing")
    entries = [each for each in entry_points(group=module.GROUP) if each.module.startswith(package)]
    assert entries
    assert {module._description(each) for each in entries} == {None}


def test_version() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert result.exit_code == 0
    assert result.output.startswith("cloister ")


@pytest.mark.usefixtures("plugged")
def test_a_command_runs() -> None:
    result = CliRunner().invoke(main, ["config", "--help"])
    assert result.exit_code == 0
    assert "validate" in result.output


@pytest.mark.usefixtures("plugged")
def test_help_survives_commands_that_cannot_be_loaded() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    assert "Validate, explain, measure and compare" in result.output
    assert "Broken." in result.output


@pytest.mark.usefixtures("plugged")
@pytest.mark.parametrize("words", [["gone"], ["gone", "--help"], ["gone", "a", "--b", "c"]])
def test_a_broken_command_says_what_is_missing(words: list[str]) -> None:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 1
    assert "cloister_cli.gone" in result.output


@pytest.mark.usefixtures("plugged")
@pytest.mark.parametrize("name", ["unknown", "number"])
def test_an_unknown_command_is_a_usage_error(name: str) -> None:
    result = CliRunner().invoke(main, [name])
    assert result.exit_code == 2
    assert name in result.output


@pytest.mark.parametrize(
    ("package", "extra", "library"),
    [("cloister_api", "api", "fastapi"), ("cloister_operator", "operator", "kopf")],
)
def test_a_missing_extra_is_named(package: str, extra: str, library: str) -> None:
    entry = EntryPoint("thing", f"{package}.commands.thing:thing", module.GROUP)
    missing = ModuleNotFoundError(f"No module named {library!r}", name=library)
    result = CliRunner().invoke(module._missing(entry, missing), ["--any", "word"])
    assert result.exit_code == 1
    assert f"needs the extra {extra!r}" in result.output
    assert re.search(rf"pip install '\./cloister-[^ ]+\.whl\[{extra}\]'", result.output)
    assert library in result.output


def test_the_command_line_loads_neither_program() -> None:
    code = (
        "import sys; from cloister_cli.main import main\n"
        "try: main(['config', 'validate', '/dev/null'])\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if name.split('.')[0] in "
        "('cloister_api', 'cloister_operator', 'fastapi', 'kopf', 'httpx')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
