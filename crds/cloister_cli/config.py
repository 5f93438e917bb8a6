"""``cloister config``: validate a configuration file, explain what it gives, measure its enclave.

Exit codes: 0 the file is valid, 1 it is not, 2 it cannot be read (or the command is wrong).
"""

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from cloister_cli.difference import diff
from cloister_cli.explanation import explanation
from cloister_cli.measurement import measure, read_host
from cloister_cli.verdict import print_verdict
from cloister_crds.config import ParsedConfig, Rules, parse
from cloister_crds.lifecycle.admission.host_requirements import host_problems

INVALID: Final = 1
UNREADABLE: Final = 2


@click.group()
def config() -> None:
    """Validate, explain, measure and compare configuration files (service-config.yml)."""


config.add_command(measure)
config.add_command(diff)


def _rules_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the rules that a file is validated by."""
    options = (
        click.argument("file"),
        click.option(
            "--release",
            is_flag=True,
            help="Validate it as the file of a release: placeholders are errors.",
        ),
        click.option(
            "--strict-from",
            metavar="X.Y.Z",
            help="Make strict rules errors from this cvm-version on.",
        ),
        click.option(
            "--variable",
            "variables",
            multiple=True,
            metavar="NAME=VALUE",
            help="A deploy-time variable; with one, all bare names are compared with them.",
        ),
        click.option(
            "--service",
            default="cloister",
            show_default=True,
            help="Name of the service, which names the mount of the verified files.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@config.command()
@_rules_options
@click.option("--host", metavar="FILE", help="Manifest of the Host (chost) that runs it.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
def validate(file: str, *, host: str | None, as_json: bool, **settings: Any) -> None:
    """Validate FILE (- for standard input) by all rules of the format.

    With a Host also by what that offers: GPUs, devices, capabilities, models. Whether images and
    secrets exist, and whether the organization may use as much, is checked when a container is
    created.
    """
    parsed = _parse(file, **settings)
    if host is not None and parsed.config is not None:
        found = tuple(host_problems(parsed.config, read_host(host), None))
        problems = (*parsed.problems, *found)
        parsed = dataclasses.replace(
            parsed, problems=problems, config=None if found else parsed.config
        )
    if as_json:
        click.echo(json.dumps(_as_json(parsed), indent=2))
    else:
        print_verdict(parsed, file)
    sys.exit(0 if parsed.valid else INVALID)


@config.command()
@_rules_options
def explain(file: str, **settings: Any) -> None:
    """Explain what each container of FILE (- for standard input) will get."""
    parsed = _parse(file, **settings)
    if parsed.config is None:
        print_verdict(parsed, file)
        sys.exit(INVALID)
    explanation(parsed.config, service=settings["service"], variables=_pairs(settings))


def _parse(
    file: str, *, release: bool, strict_from: str | None, service: str, **settings: Any
) -> ParsedConfig:
    """Read and validate a file, or exit the program."""
    variables = _pairs(settings)
    try:
        rules = Rules(
            release=release, strict_from=strict_from, service=service, variables=variables or None
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    try:
        if file == "-":
            raw = sys.stdin.buffer.read(rules.max_bytes + 1)
        else:
            with Path(file).open("rb") as stream:
                raw = stream.read(rules.max_bytes + 1)
    except OSError as error:
        click.echo(f"{file} cannot be read: {error.strerror or error}", err=True)
        sys.exit(UNREADABLE)
    return parse(raw, rules=rules)


def _pairs(settings: dict[str, Any]) -> dict[str, str]:
    """Split variables into names and values."""
    pairs = {}
    for text in settings["variables"]:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--variable {text!r}: write NAME=VALUE")
        pairs[name] = value
    return pairs


def _as_json(parsed: ParsedConfig) -> dict[str, Any]:
    """Return the verdict as JSON; a file too long to be read has no digest."""
    return {
        "valid": parsed.valid,
        "digest": parsed.digest if len(parsed.raw) <= Rules().max_bytes else None,
        "problems": [dataclasses.asdict(problem) for problem in parsed.problems],
        "config": parsed.config.model_dump(mode="json") if parsed.config else None,
    }
