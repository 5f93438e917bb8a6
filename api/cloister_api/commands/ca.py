"""``cloister ca``: the own certificate authority of an installation."""

from pathlib import Path

import click

from cloister_api.certificates.authority import Authority, AuthorityError
from cloister_api.certificates.settings import OwnAuthoritySettings
from cloister_api.commands.options import config_option, settings_of
from cloister_clients.clock import utc_now

__all__ = ["ca"]


@click.group()
def ca() -> None:
    """Own certificate authority: create, show."""


@ca.command()
@click.option("--name", default="Cloister own authority", show_default=True, help="Common name.")
@config_option
def create(name: str, config: Path) -> None:
    """Make the authority that `certificates.own` of the settings names."""
    own = own_of(config)
    try:
        Authority.create(own.certificate, own.key, name=name, now=utc_now())
    except AuthorityError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"authority written to {own.certificate}; its key to {own.key}, which is secret")


@ca.command()
@config_option
def show(config: Path) -> None:
    """Print the certificate that clients of enclaves are to trust, PEM."""
    own = own_of(config)
    try:
        click.echo(Authority.read(own.certificate, own.key).pem, nl=False)
    except AuthorityError as error:
        raise click.ClickException(str(error)) from error


def own_of(config: Path) -> OwnAuthoritySettings:
    """Answer the settings of the own authority.

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
