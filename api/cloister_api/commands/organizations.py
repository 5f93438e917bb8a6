"""``cloister org``: Organizations, and the identifiers of restored objects."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from cloister_api.commands.options import finish, kubeconfig_option
from cloister_api.context import FIELD_MANAGER
from cloister_clients.kube import AlreadyExists, Invalid, KubeClient, KubeConfig
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import (
    Container,
    Deployment,
    Domain,
    Organization,
    RegistryCredential,
    Secret,
    SSHKey,
)
from cloister_crds.kinds.meta import GROUP, ObjectMeta, Record
from cloister_crds.kinds.organization import (
    ORGANIZATION_FINALIZER,
    Billing,
    Entitlements,
    Limits,
    Member,
    OrganizationSpec,
    Role,
)
from cloister_crds.lifecycle.admission.limits import billing_of

RECORDS: tuple[type[Record], ...] = (
    Organization,
    Container,
    Deployment,
    Secret,
    SSHKey,
    RegistryCredential,
    Domain,
)
"""The kinds that are records of the API, Organizations first."""
Place = tuple[str, str]
"""Namespace, empty for Organizations, and name."""


def read_backup(file: Path) -> dict[type[Record], dict[Place, str]]:
    """Return the identifiers in a backup, by kind and place.

    Parameters
    ----------
    file
        List in JSON, as ``kubectl get … -A -o json`` writes it.

    Raises
    ------
    ClickException
        When it is not such a list.
    """
    try:
        items = json.loads(file.read_text(encoding="utf-8"))["items"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise click.ClickException(
            f"{file} is not a list of objects in JSON; write it with kubectl get "
            "org,ctr,cdep,csec,sshkeys,registrycredentials,cdom -A -o json"
        ) from error
    kinds = {kind.INFO.kind: kind for kind in RECORDS}
    found: dict[type[Record], dict[Place, str]] = {kind: {} for kind in RECORDS}
    for item in items:
        kind = kinds.get(item.get("kind", ""))
        if kind is None or not item.get("apiVersion", "").startswith(f"{GROUP}/"):
            continue
        try:
            record = kind.read(item)
        except ValidationError as error:
            name = item.get("metadata", {}).get("name")
            raise click.ClickException(f"{file}: {kind.INFO.kind} {name}: {error}") from error
        found[kind][place_of(record)] = record.identifier
    return found


async def restore_identifiers(
    client: KubeClient, backup: Mapping[type[Record], Mapping[Place, str]]
) -> tuple[int, list[str]]:
    """Write the identifiers of a backup into the status of the objects that were restored.

    Parameters
    ----------
    client
        Client of somebody who may change admission policies.

    Returns
    -------
    tuple
        How many were written, and what was refused, as sentences. Running it again is harmless.

    Raises
    ------
    KubeError
        When the cluster refuses or does not respond.
    """
    written, refused = 0, []
    for kind, identifiers in backup.items():
        if not identifiers:
            continue
        live = [kind.read(item) for item in (await client.list(of(kind))).items]
        holders = {name: record for record in live for name in names_of(record)}
        places = {place_of(record): record for record in live}
        for place, identifier in identifiers.items():
            problem = refusal(places.get(place), identifier, holders.get(identifier))
            if problem:
                refused.append(f"{kind.INFO.kind} {'/'.join(filter(None, place))}: {problem}")
            elif places[place].identifier != identifier:
                await write(client, places[place], identifier)
                # A later entry of the backup must not get the same identifier.
                holders[identifier] = places[place]
                written += 1
    return written, refused


def refusal(record: Record | None, identifier: str, holder: Record | None) -> str:
    """Return why an object does not get an identifier; empty if it gets or has it."""
    if record is None:
        return "it is not in the cluster; apply it first"
    if record.identifier == identifier:
        return ""
    if record.status.id is not None:
        return f"its status.id is {record.status.id} already, and never changes"
    if holder is not None:
        where = "/".join(filter(None, place_of(holder)))
        return f"{identifier} belongs to {where}; every identifier belongs to one object"
    return ""


async def write(client: KubeClient, record: Record, identifier: str) -> None:
    """Write status.id, unless the object has changed since it was read."""
    meta = record.metadata
    patch: dict[str, Any] = {
        "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        "status": {"id": identifier},
    }
    await client.merge_patch(
        of(type(record)), meta.name, patch, meta.namespace, subresource="status"
    )


def place_of(record: Record) -> Place:
    """Return the place of an object."""
    return record.metadata.namespace or "", record.metadata.name


def names_of(record: Record) -> set[str]:
    """Return everything that identifies an object: also the uid of one that has a status.id."""
    return {record.metadata.uid, record.identifier}


@click.group()
def org() -> None:
    """Organizations: create, list, restore-ids."""


@org.command()
@click.argument("name")
@click.option("--namespace", default=None, help="Its namespace. Default org-NAME.")
@click.option("--admin", "admins", multiple=True, help="User who may hold admin keys; repeatable.")
@click.option(
    "--developer", "developers", multiple=True, help="User who deploys and updates; repeatable."
)
@click.option(
    "--auditor", "auditors", multiple=True, help="User who reads, the audit trail too; repeatable."
)
@click.option("--member", "members", multiple=True, help="User who reads; repeatable.")
@click.option(
    "--containers", default=10, show_default=True, help="How many containers it may have."
)
@click.option(
    "--subscription/--no-subscription", default=False, help="Active container subscription or not."
)
@click.option(
    "--token-billing/--no-token-billing",
    default=False,
    help="Active token billing or not; API keys need it.",
)
@click.option(
    "--customer",
    default=None,
    help="Customer of the payment processor, such as cus_…; its subscriptions win over the flags.",
)
@click.option("--host-selection", is_flag=True, help="Containers may name their Host.")
@kubeconfig_option
def create(
    name: str,
    namespace: str | None,
    admins: tuple[str, ...],
    developers: tuple[str, ...],
    auditors: tuple[str, ...],
    members: tuple[str, ...],
    containers: int,
    subscription: bool,  # noqa: FBT001 - click passes options by keyword
    token_billing: bool,  # noqa: FBT001 - as above
    customer: str | None,
    host_selection: bool,  # noqa: FBT001 - as above
    kubeconfig: Path | None,
) -> None:
    """Create the Organization NAME, which is its slug and part of host names."""
    given = zip(Role, (admins, developers, auditors, members), strict=True)
    people = [Member(user=user, role=role) for role, users in given for user in users]
    organization = Organization(
        # Guarded from the first moment, also while no operator runs.
        metadata=ObjectMeta(name=name, finalizers=(ORGANIZATION_FINALIZER,)),
        spec=OrganizationSpec(
            namespace=namespace or f"org-{name}",
            members=tuple(people),
            limits=Limits(containers=containers),
            entitlements=Entitlements(host_selection=host_selection),
            billing=Billing(
                container_subscription=subscription,
                token_billing=token_billing,
                customer_id=customer,
            ),
        ),
    )
    finish(create_organization(organization, kubeconfig))
    click.echo(f"organization {name} created; its namespace is {organization.spec.namespace}")


async def create_organization(organization: Organization, kubeconfig: Path | None) -> None:
    """Create the object.

    Raises
    ------
    ClickException
        When there is one of that name, or the server refuses it.
    KubeError
        When the cluster refuses or does not respond.
    """
    async with open_client(kubeconfig) as client:
        try:
            await client.create(of(Organization), organization.manifest())
        except AlreadyExists as error:
            raise click.ClickException(
                f"organization {organization.metadata.name} exists; change it with kubectl edit org"
            ) from error
        except Invalid as error:
            raise click.ClickException(error.message) from error


@org.command("list")
@kubeconfig_option
def list_organizations(kubeconfig: Path | None) -> None:
    """List Organizations: name, namespace, members, subscription."""
    for organization in finish(read_organizations(kubeconfig)):
        people = ", ".join(f"{one.user} ({one.role.value})" for one in organization.spec.members)
        paid = "yes" if billing_of(organization).container_subscription else "no"
        click.echo(
            f"{organization.metadata.name}\tnamespace {organization.spec.namespace}\t"
            f"subscription {paid}\t{people or 'no members'}"
        )


async def read_organizations(kubeconfig: Path | None) -> list[Organization]:
    """Read all Organizations.

    Raises
    ------
    KubeError
        When the cluster refuses or does not respond.
    """
    async with open_client(kubeconfig) as client:
        page = await client.list(of(Organization))
    return [Organization.read(item) for item in page.items]


@org.command("restore-ids")
@click.argument("backup", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@kubeconfig_option
def restore_ids(backup: Path, kubeconfig: Path | None) -> None:
    """Write the identifiers that objects have in BACKUP into those that were restored.

    BACKUP is what `kubectl get org,ctr,cdep,csec,sshkeys,registrycredentials,cdom -A -o json` wrote
    before the loss. Apply its objects first.
    """

    async def restored() -> tuple[int, list[str]]:
        async with open_client(kubeconfig) as client:
            return await restore_identifiers(client, read_backup(backup))

    written, refused = finish(restored())
    click.echo(f"{written} identifiers restored")
    if refused:
        raise click.ClickException("not restored: " + "; ".join(refused))


def open_client(kubeconfig: Path | None) -> KubeClient:
    """Open a client for a command.

    Raises
    ------
    ConfigError
        When no cluster is configured.
    """
    config = KubeConfig.load(kubeconfig)
    return KubeClient(config, field_manager=FIELD_MANAGER, user_agent=FIELD_MANAGER)
