"""``cloister ca``: the own certificate authority, and the key of an ACME account."""

from pathlib import Path

import click

from cloister_api.certificates.authority import AuthorityError, CertificateAuthority, make_key
from cloister_api.certificates.settings import OwnAuthoritySettings
from cloister_api.commands.options import config_option, settings_of
from cloister_clients.clock import utc_now

__all__ = ["ca"]


@click.group()
def ca() -> None:
    """Certificate authorities: create, show, account-key."""


@ca.command()
@click.option("--name", default="Cloister own authority", show_default=True, help="Common name.")
@config_option
def create(name: str, config: Path) -> None:
    """Create the authority that `certificates.own` of the settings names."""
    own = own_of(config)
    try:
        CertificateAuthority.create(own.certificate, own.key, name=name, now=utc_now())
    except AuthorityError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"authority written to {own.certificate}; its key to {own.key}, which is secret")


@ca.command()
@config_option
def show(config: Path) -> None:
    """Print the certificate that clients of enclaves are to trust, PEM."""
    own = own_of(config)
    try:
        click.echo(CertificateAuthority.read(own.certificate, own.key).pem, nl=False)
    except AuthorityError as error:
        raise click.ClickException(str(error)) from error


@ca.command("account-key")
@config_option
def account_key(config: Path) -> None:
    """Create the key of the account that `certificates.acme` of the settings names."""
    certificates = settings_of(config).certificates
    if certificates is None or certificates.acme is None:
        raise click.ClickException(f"{config} names no account; set certificates.acme")
    try:
        make_key(certificates.acme.account_key)
    except AuthorityError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"account key written to {certificates.acme.account_key}; it is secret")


def own_of(config: Path) -> OwnAuthoritySettings:
    """Return the settings of the own authority.

    Raises
    ------
    ClickException
        When there are none.
    """
    certificates = settings_of(config).certificates
    if certificates is None or certificates.own is None:
        raise click.ClickException(
            f"{config} names no own authority; set certificates.issuer to own, and "
            "certificates.own with `certificate` and `key`"
        )
    return certificates.own
