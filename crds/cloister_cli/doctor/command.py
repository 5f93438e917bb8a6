"""``cloister doctor``: its options, and the run of all checks."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any, Final

import click

from cloister_cli.doctor.access import DEFAULT_NAMES, check_access
from cloister_cli.doctor.cluster import (
    check_clock,
    check_kinds,
    check_nodes,
    check_policies,
    check_restore,
    check_server,
    try_policy,
)
from cloister_cli.main import with_extra
from cloister_cli.verdict import printable
from cloister_clients.findings import Finding, FindingLevel, failed, warned
from cloister_clients.kube import ConfigError, Forbidden, KubeClient, KubeConfig, KubeError
from cloister_clients.kube.kinds import NAMESPACE, NODE

OPTIONS = (
    click.option(
        "--kubeconfig",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Kubeconfig file; where not given $KUBECONFIG, the Pod's account, ~/.kube/config.",
    ),
    click.option("--context", help="Context of the kubeconfig file; default its current one."),
    click.option(
        "--namespace",
        default="cloister-system",
        show_default=True,
        help="Namespace of the operator.",
    ),
)


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command with the options ``--kubeconfig``, ``--context`` and ``--namespace``."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


GROUP: Final = "cloister.checks"
"""Group of entry points that the programs' own checks come from, by program."""
ORGANIZATIONS: Final = "cloister.dev/organization"
"""Label of namespaces of organizations."""
DEFAULT_LEASE: Final = "cloister-operator"
"""Name of the operator's Lease where its settings name no other."""
COLORS: Final = {FindingLevel.PASS: "green", FindingLevel.WARN: "yellow", FindingLevel.FAIL: "red"}

Checks = Callable[[Path], Awaitable[list[Finding]]]


@click.command()
@cluster_options
@click.option(
    "--operator-account",
    default=DEFAULT_NAMES["operator"],
    show_default=True,
    help="Account of the operator in that namespace.",
)
@click.option(
    "--api-account",
    default=DEFAULT_NAMES["api"],
    show_default=True,
    help="Account of the API in that namespace.",
)
@click.option(
    "--lease",
    default=DEFAULT_LEASE,
    show_default=True,
    help="Lease of the operator (setting lease.name) in that namespace.",
)
@click.option(
    "--operator-config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Settings of the operator: checks what they name, from this machine.",
)
@click.option(
    "--api-config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Settings of the API: checks what they name, from this machine.",
)
@click.option(
    "--output",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="One line for each check, or one JSON document.",
)
def doctor(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
    operator_account: str,
    api_account: str,
    lease: str,
    operator_config: Path | None,
    api_config: Path | None,
    output: str,
) -> None:
    """Check an installation, and say what to do about what is wrong.

    It changes nothing. The exit code is 1 when a check failed, else 0.
    """
    settings = {"operator": operator_config, "api": api_config}
    try:
        config = KubeConfig.load(kubeconfig, context)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    names = {"operator": operator_account, "api": api_account}
    findings = asyncio.run(diagnose(config, namespace, settings, names, lease=lease))
    if output == "json":
        click.echo(json.dumps(document(findings), indent=2))
    else:
        print_findings(findings)
    sys.exit(any(each.level is FindingLevel.FAIL for each in findings))


async def diagnose(
    config: KubeConfig,
    namespace: str,
    settings: dict[str, Path | None],
    names: Mapping[str, str] = DEFAULT_NAMES,
    *,
    lease: str = DEFAULT_LEASE,
) -> list[Finding]:
    """Run all checks.

    Parameters
    ----------
    config
        How the API server is reached.
    settings
        Settings of each program; None if what they name is not checked.
    """
    async with KubeClient(
        config, field_manager="cloister-doctor", user_agent="cloister-doctor"
    ) as client:
        findings = await check_cluster(config, client, namespace, names, lease=lease)
    named = {program: path for program, path in settings.items() if path is not None}
    for program, path in named.items():
        findings += await check_program(program, path)
    if not named:
        remedy = "name the files with --operator-config and --api-config"
        findings.append(warned("settings", "what they name was not checked", remedy))
    return findings


async def check_cluster(
    config: KubeConfig,
    client: KubeClient,
    namespace: str,
    names: Mapping[str, str] = DEFAULT_NAMES,
    *,
    lease: str = DEFAULT_LEASE,
) -> list[Finding]:
    """Check what the API server tells; without a response there is nothing more to check."""
    try:
        findings = [await check_server(client)]
    except KubeError as error:
        remedy = "name the right kubeconfig and context, and see whether the server runs"
        return [failed("kubernetes", f"the API server does not respond: {error}", remedy)]
    organization, unseen = None, None
    try:
        organization = await _organization(client)
    except KubeError as error:
        unseen = error

    async def rights() -> list[Finding]:
        return await check_access(
            config, client, system=namespace, organization=organization, names=names
        )

    async def nodes() -> list[Finding]:
        return check_nodes((await client.list(NODE)).items)

    async def restore() -> list[Finding]:
        return [await check_restore(client, namespace, lease)]

    async def forbidden() -> list[Finding]:
        if unseen is not None:
            raise unseen
        return [await try_policy(client, organization)]

    checks: dict[str, Callable[[], Awaitable[list[Finding]]]] = {
        "kinds": lambda: check_kinds(client),
        "policies": lambda: check_policies(client),
        "forbidden write": forbidden,
        "rights": rights,
        "restore": restore,
        "nodes": nodes,
    }
    findings += await _run(checks)
    return [*findings, check_clock(client)]


async def _run(checks: Mapping[str, Callable[[], Awaitable[list[Finding]]]]) -> list[Finding]:
    """Run checks by name; those that the account may not make are one finding."""
    findings: list[Finding] = []
    forbidden_checks = []
    for name, check in checks.items():
        try:
            findings += await check()
        # One check that fails must not hide the results of the others.
        except Forbidden:
            forbidden_checks.append(name)
        except KubeError as error:
            remedy = "run this again when the API server responds"
            findings.append(warned(name, f"it could not be checked: {error}", remedy))
    if forbidden_checks:
        message = f"this account may not read what they need: {', '.join(forbidden_checks)}"
        findings.append(warned("other checks", message, "run this as an administrator"))
    return findings


async def _organization(client: KubeClient) -> str | None:
    """Return a namespace of an organization; None if there is none.

    Raises
    ------
    KubeError
        When they cannot be listed.
    """
    page = await client.list(NAMESPACE, label_selector=ORGANIZATIONS)
    names = (
        each["metadata"]["name"]
        for each in page.items
        if not each["metadata"].get("deletionTimestamp")
    )
    return next(names, None)


async def check_program(program: str, path: Path) -> list[Finding]:
    """Run the checks that a program brings of its own settings."""
    name = f"settings of the {program}"
    for entry in entry_points(group=GROUP, name=program):
        try:
            checks: Checks = entry.load()
        except ImportError as error:
            remedy = with_extra(program)
            return [warned(name, f"{error.name} is not installed", remedy)]
        return await checks(path)
    return [failed(name, "this installation of cloister has no such program", "install it again")]


def document(findings: list[Finding]) -> dict[str, object]:
    """Return findings as JSON data."""
    return {
        "version": version("cloister"),
        "failed": sum(each.level is FindingLevel.FAIL for each in findings),
        "findings": [
            {
                "check": each.check,
                "level": each.level.value,
                "message": each.message,
                "remedy": each.remedy,
            }
            for each in findings
        ],
    }


def print_findings(findings: list[Finding]) -> None:
    """Print one line for each finding, and its remedy below."""
    width = max(len(each.check) for each in findings)
    for each in findings:
        level = click.style(each.level.value, fg=COLORS[each.level])
        click.echo(f"{level}  {each.check:{width}}  {printable(each.message)}")
        if each.remedy:
            click.echo(f"{'':{width + 8}}{printable(each.remedy)}")
