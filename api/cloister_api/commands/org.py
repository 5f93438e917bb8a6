"""``cloister org``: Organizations, for administrators who do not want to write YAML."""

from pathlib import Path

import click

from cloister_api.commands.identifiers import read_backup, restore_identifiers
from cloister_api.commands.options import finish, kubeconfig_option
from cloister_api.context import FIELD_MANAGER
from cloister_clients.kube import AlreadyExists, Invalid, KubeClient, KubeConfig
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Organization
from cloister_crds.kinds.meta import ObjectMeta
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

__all__ = ["org"]


@click.group()
def org() -> None:
    """Organizations: create, list, restore-ids."""


@org.command()
@click.argument("name")
@click.option("--namespace", default=None, help="Its namespace. Default org-NAME.")
@click.option("--admin", "admins", multiple=True, help="User who may hold admin keys; repeatable.")
@click.option("--member", "members", multiple=True, help="User who may not; repeatable.")
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
    members: tuple[str, ...],
    containers: int,
    subscription: bool,  # noqa: FBT001 - click passes options by keyword
    token_billing: bool,  # noqa: FBT001 - as above
    customer: str | None,
    host_selection: bool,  # noqa: FBT001 - as above
    kubeconfig: Path | None,
) -> None:
    """Create the Organization NAME, which is its slug and part of host names."""
    people = [Member(user=user, role=Role.ADMIN) for user in admins]
    people += [Member(user=user) for user in members]
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
