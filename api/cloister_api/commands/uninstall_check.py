"""``cloister uninstall-check``: whether the programs may go; the chart runs it before it does."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from cloister_api.commands.options import finish, kubeconfig_option
from cloister_clients.kube import KubeClient, KubeConfig, NotFound
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Container, Enclave

__all__ = ["refusal", "uninstall_check"]

AGENT: Final = "cloister-uninstall-check"
NAMED: Final = 5
"""Objects that the refusal names at most."""


@click.command("uninstall-check")
@kubeconfig_option
def uninstall_check(kubeconfig: Path | None) -> None:
    """Fail while there are Containers or Enclaves: without Cloister they would run on alone."""
    containers, enclaves = finish(remaining(kubeconfig))
    if why := refusal(containers, enclaves):
        raise click.ClickException(why)
    click.echo("no Containers and no Enclaves: Cloister may be uninstalled")


async def remaining(kubeconfig: Path | None) -> tuple[list[str], list[str]]:
    """Return the Containers and Enclaves of all organizations, as ``namespace/name``.

    Raises
    ------
    ConfigError
        When no cluster is configured.
    KubeError
        When the cluster refuses or does not respond.
    """
    config = KubeConfig.load(kubeconfig)
    async with KubeClient(config, field_manager=AGENT, user_agent=AGENT) as client:
        return await names(client, Container), await names(client, Enclave)


async def names(client: KubeClient, kind: type[Container] | type[Enclave]) -> list[str]:
    """Return the objects of a kind as ``namespace/name``; none where the kind is not installed."""
    try:
        page = await client.list(of(kind), metadata_only=True)
    except NotFound:
        return []
    found = (item["metadata"] for item in page.items)
    return sorted(f"{each['namespace']}/{each['name']}" for each in found)


def refusal(containers: Sequence[str], enclaves: Sequence[str]) -> str:
    """Return why Cloister may not be uninstalled, with the remedy; empty = it may.

    Parameters
    ----------
    containers, enclaves
        What there is, as ``namespace/name``.
    """
    if containers:
        return (
            f"Cloister is not uninstalled while there are Containers ({listed(containers)}): their "
            "enclaves would run on with nobody to update, meter or end them. Delete them first "
            "(kubectl delete ctr --all -n NAMESPACE), or set uninstall.force by helm upgrade and "
            "uninstall again"
        )
    if enclaves:
        return (
            f"Cloister is not uninstalled while Enclaves end ({listed(enclaves)}): without it "
            "their finalizers would keep them. Wait until kubectl get encl -A shows none"
        )
    return ""


def listed(names: Sequence[str]) -> str:
    """Return the first names and how many follow."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
