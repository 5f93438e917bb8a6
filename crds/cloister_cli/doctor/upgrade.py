"""``cloister upgrade-check``: whether this version can follow the one that runs.

The chart runs it, by the new image, before anything of an upgrade is written.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any, Final

import click
import yaml

from cloister_cli.doctor.command import cluster_options
from cloister_clients.kube import ConfigError, KubeClient, KubeConfig, KubeError, NotFound
from cloister_clients.kube.kinds import CUSTOM_RESOURCE_DEFINITION, KindRef
from cloister_clients.settings import SettingsError
from cloister_crds.crd_manifests import manifests
from cloister_crds.kinds.meta import GROUP

AGENT: Final = "cloister-upgrade-check"
DEPLOYMENT: Final = KindRef("apps", "v1", "deployments", "Deployment")
OURS: Final = "app.kubernetes.io/part-of=cloister"
"""Label of what the chart makes."""
SETTINGS_READERS: Final = "cloister.settings"
"""Group of entry points that read the settings of a program, by program."""
MAJOR_MINOR: Final = re.compile(r"v?(\d+)\.(\d+)")


@click.command("upgrade-check")
@cluster_options
@click.option(
    "--settings",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory with the new settings, operator.yaml and api.yaml.",
)
def upgrade_check(
    kubeconfig: Path | None, context: str | None, namespace: str, settings: Path | None
) -> None:
    """Fail when this version cannot follow the one that runs, or cannot read its settings.

    It changes nothing.
    """
    wrong = settings_refusals(settings) if settings else []
    try:
        config = KubeConfig.load(kubeconfig, context)
        wrong += asyncio.run(cluster_refusals(config, namespace))
    except (ConfigError, KubeError) as error:
        raise click.ClickException(f"the upgrade could not be checked: {error}") from error
    if wrong:
        raise click.ClickException("not upgraded: " + "\n".join(wrong))
    click.echo(f"Cloister {version('cloister')} can follow what runs in {namespace}")


def settings_refusals(folder: Path) -> list[str]:
    """Return why programs of this version cannot read their settings.

    Parameters
    ----------
    folder
        Where they are, as ``PROGRAM.yaml``.
    """
    wrong = []
    for entry in entry_points(group=SETTINGS_READERS):
        path = folder / f"{entry.name}.yaml"
        if not path.exists():
            continue
        try:
            read: Callable[[Path], object] = entry.load()
            read(path)
        except ImportError:
            # Without the program's extra there is nothing that its settings are for.
            continue
        except SettingsError as error:
            wrong.append(f"{error}; correct the values of the chart")
    return wrong


async def cluster_refusals(config: KubeConfig, namespace: str) -> list[str]:
    """Return why this version cannot follow what the cluster has.

    Raises
    ------
    KubeError
        When the server does not respond, or refuses.
    """
    async with KubeClient(config, field_manager=AGENT, user_agent=AGENT) as client:
        wrong = []
        page = await client.list(DEPLOYMENT, namespace, label_selector=OURS)
        for each in page.items:
            labels = each["metadata"]["labels"]
            present = labels.get("app.kubernetes.io/version", "")
            program = labels.get("app.kubernetes.io/component", each["metadata"]["name"])
            wrong.append(skew_refusal(program, present, version("cloister")))
        for name, text in manifests().items():
            crd = f"{name.removesuffix('.yaml')}.{GROUP}"
            try:
                kind = await client.get(CUSTOM_RESOURCE_DEFINITION, crd)
            except NotFound:
                continue
            wrong.append(dropped_versions(crd, kind, yaml.safe_load(text)))
    return list(filter(None, wrong))


def skew_refusal(program: str, present: str, new: str) -> str:
    """Return why one version cannot follow another; empty if it can, or that is not known.

    During an upgrade the old operator works with the new API, or the other way round. One minor
    version apart they understand each other, in either direction.

    Parameters
    ----------
    present
        The version that runs; anything that is not a version is ignored.
    """
    found, wanted = MAJOR_MINOR.match(present), MAJOR_MINOR.match(new)
    if found is None or wanted is None:
        return ""
    old_major, old_minor = map(int, found.groups())
    major, minor = map(int, wanted.groups())
    if old_major == major:
        near = abs(minor - old_minor) <= 1
        step = old_minor + (1 if minor > old_minor else -1)
        remedy = f"go by {major}.{step} first"
    else:
        # A major version begins where the last minor one before it ends; its changelog names that.
        near = (major, minor) == (old_major + 1, 0)
        remedy = f"go by {old_major + 1}.0 first"
        if major < old_major:
            remedy = "restore a backup of that version instead"
    if near:
        return ""
    return (
        f"the {program} that runs is Cloister {present}, and this is {new}; versions that work "
        f"together are one minor version apart at most: {remedy}"
    )


def dropped_versions(crd: str, present: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Return why a kind cannot be replaced by that of this version; empty if it can.

    Parameters
    ----------
    present
        Its CustomResourceDefinition on the server.
    """
    stored = (present.get("status") or {}).get("storedVersions") or ()
    kept = {each["name"] for each in wanted["spec"]["versions"]}
    dropped = [each for each in stored if each not in kept]
    if not dropped:
        return ""
    return (
        f"objects of {crd} are stored as {', '.join(dropped)}, which this version does not have: "
        "write every object of the kind once by the version that runs, then take "
        f"{', '.join(dropped)} out of status.storedVersions"
    )
