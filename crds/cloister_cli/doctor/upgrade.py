"""``cloister upgrade-check``: whether this version can follow the one that runs.

The chart runs it, by the new image, before anything of an upgrade is written.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any, Final

import click
import yaml
from pydantic import ValidationError

from cloister_cli.doctor.command import cluster_options
from cloister_clients.findings import listed
from cloister_clients.kube import ConfigError, KubeClient, KubeConfig, KubeError, NotFound
from cloister_clients.kube.kinds import (
    CONFIG_MAP,
    CUSTOM_RESOURCE_DEFINITION,
    PRIORITY_CLASS,
    SECRET,
    KindRef,
    of,
)
from cloister_clients.settings import SettingsError
from cloister_crds.crd_manifests import manifests
from cloister_crds.installation import CONFIG_MAP_NAME, InstallationSettings
from cloister_crds.kinds import Container, Domain
from cloister_crds.kinds.meta import GROUP

AGENT: Final = "cloister-upgrade-check"
DEPLOYMENT: Final = KindRef("apps", "v1", "deployments", "Deployment")
OURS: Final = "app.kubernetes.io/part-of=cloister"
"""Label of what the chart makes."""
SETTINGS_READERS: Final = "cloister.settings"
"""Group of entry points that read the settings of a program, by program."""
MOUNTED: Final = re.compile(r"/etc/cloister/files/(secret|configMap)/([^/\"]+)/([^/\"]+)")
"""Path at which the chart mounts a key of a Secret or ConfigMap."""
TLS_ROUTES: Final = "tlsroutes.gateway.networking.k8s.io"
MAJOR_MINOR: Final = re.compile(r"v?(\d+)\.(\d+)")


@click.command("upgrade-check")
@cluster_options
@click.option(
    "--settings",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory with the new settings, operator.yaml and api.yaml.",
)
@click.option(
    "--priority-class",
    "priority_classes",
    multiple=True,
    help="PriorityClass of the programs, which must exist; may be repeated.",
)
def upgrade_check(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
    settings: Path | None,
    priority_classes: tuple[str, ...],
) -> None:
    """Fail when this version cannot follow the one that runs, or its settings cannot be used.

    They must be readable, and the Secrets, ConfigMaps and kinds that they name must exist. It
    changes nothing.
    """
    wrong = settings_refusals(settings) if settings else []
    wanted = Prerequisites.of(settings, priority_classes)
    try:
        config = KubeConfig.load(kubeconfig, context)
        wrong += asyncio.run(cluster_refusals(config, namespace, wanted))
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


@dataclass(frozen=True, slots=True)
class Prerequisites:
    """What the new settings name in the cluster."""

    files: frozenset[tuple[str, str, str]] = frozenset()
    """Keys of Secrets and ConfigMaps that the chart mounts: kind, name and key."""
    priority_classes: tuple[str, ...] = ()
    """PriorityClasses of the programs."""
    gateway: bool = False
    """Whether requests are routed by a Gateway."""
    containers_domain: str = ""
    """Domain of generated host names; empty if no settings are given."""
    domain_target: str = ""
    """Domain of the targets of custom domains; empty if there are none."""

    @classmethod
    def of(cls, folder: Path | None, priority_classes: tuple[str, ...]) -> "Prerequisites":
        """Read them from the settings, which `settings_refusals` judges."""
        texts = [path.read_text() for path in sorted(folder.glob("*.yaml"))] if folder else []
        try:
            settings = [yaml.safe_load(text) for text in texts]
        except yaml.YAMLError:
            return cls(priority_classes=priority_classes)
        known = [each for each in settings if isinstance(each, dict)]
        merged = {name: value for each in known for name, value in each.items()}
        domains = merged.get("domains")
        return cls(
            frozenset(match.groups() for text in texts for match in MOUNTED.finditer(text)),  # type: ignore[misc]  # three groups
            priority_classes,
            bool(merged.get("gateway")),
            str(merged.get("containersDomain") or ""),
            str(domains.get("target") or "") if isinstance(domains, dict) else "",
        )

    async def refusals(self, client: KubeClient, namespace: str) -> list[str]:
        """Return what is missing.

        Raises
        ------
        KubeError
            When the server does not respond, or refuses.
        """
        missing = []
        for kind, name, key in sorted(self.files):
            ref = SECRET if kind == "secret" else CONFIG_MAP
            found = await _found(client, ref, name, namespace)
            if found is None:
                missing.append(
                    f"the {ref.kind} {name} does not exist in the namespace {namespace}, and the "
                    f"values name its key {key}; create it, or correct the values"
                )
            elif key not in {**(found.get("data") or {}), **(found.get("binaryData") or {})}:
                missing.append(
                    f"the {ref.kind} {name} has no key {key}, which the values name; add it, or "
                    "correct the values"
                )
        missing += [
            f"the PriorityClass {name} does not exist; create it, or correct priorityClassName in "
            "the values"
            for name in self.priority_classes
            if await _found(client, PRIORITY_CLASS, name) is None
        ]
        if self.gateway and await _found(client, CUSTOM_RESOURCE_DEFINITION, TLS_ROUTES) is None:
            missing.append(
                f"operator.settings.gateway is set, and the cluster has no kind {TLS_ROUTES}; "
                "install the CRDs of the Gateway API, or leave the setting out"
            )
        return missing + await self._moves(client, namespace)

    async def _moves(self, client: KubeClient, namespace: str) -> list[str]:
        """Return which host names would change under what serves or is to be found by them.

        Raises
        ------
        KubeError
            When the server does not respond, or refuses.
        """
        moves = []
        published = await _found(client, CONFIG_MAP, CONFIG_MAP_NAME, namespace)
        old = ""
        with suppress(KeyError, ValidationError):
            old = InstallationSettings.read(published or {}).containers_domain
        if self.containers_domain and old and old != self.containers_domain:
            names = await _names(client, of(Container))
            if names:
                moves.append(
                    f"containersDomain would change from {old} to {self.containers_domain} while "
                    f"there are Containers ({listed(names)}), which serve below {old}; see "
                    'docs/operations/upgrade.md, "Another containersDomain"'
                )
        if self.domain_target:
            elsewhere = await _names(client, of(Domain), other_target(self.domain_target))
            if elsewhere:
                moves.append(
                    f"domains.target would change to {self.domain_target} while the CNAME records "
                    f"of Domains ({listed(elsewhere)}) lead elsewhere; keep it, or delete these "
                    "Domains and create them again afterwards"
                )
        return moves


def other_target(target: str) -> Callable[[dict[str, Any]], bool]:
    """Return whether the CNAME record of a Domain has a target that is not below this one."""

    def differs(domain: dict[str, Any]) -> bool:
        records = (domain.get("status") or {}).get("records") or {}
        found = records.get("cnameTarget") or ""
        return bool(found) and not found.endswith(f".{target}")

    return differs


async def _names(
    client: KubeClient, ref: KindRef, chosen: Callable[[dict[str, Any]], bool] = bool
) -> list[str]:
    """Return the chosen objects of a kind as ``namespace/name``; none where it is not installed."""
    try:
        page = await client.list(ref)
    except NotFound:
        return []
    found = (each["metadata"] for each in page.items if chosen(each))
    return sorted(f"{each['namespace']}/{each['name']}" for each in found)


async def _found(
    client: KubeClient, ref: KindRef, name: str, namespace: str | None = None
) -> dict[str, Any] | None:
    try:
        return await client.get(ref, name, namespace)
    except NotFound:
        return None


async def cluster_refusals(
    config: KubeConfig, namespace: str, prerequisites: Prerequisites
) -> list[str]:
    """Return why this version cannot follow what the cluster has, or what is missing there.

    Raises
    ------
    KubeError
        When the server does not respond, or refuses.
    """
    async with KubeClient(config, field_manager=AGENT, user_agent=AGENT) as client:
        wrong = await prerequisites.refusals(client, namespace)
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
