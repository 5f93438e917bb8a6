"""Commands that check an installation.

``cloister ca``, ``uninstall-check`` and the API's part of ``doctor``.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

import click
from sqlalchemy.exc import SQLAlchemyError

from cloister_api.certificates.authority import (
    AuthorityError,
    CertificateAuthority,
    authority_of,
    check_issuer,
    make_key,
)
from cloister_api.certificates.settings import OwnAuthoritySettings
from cloister_api.commands.options import config_option, finish, kubeconfig_option, settings_of
from cloister_api.ledger.database import LedgerError, display_name, open_to_read, place_of
from cloister_api.ledger.keys.key_material import KeyMaterial, MaterialError
from cloister_api.ledger.migrations.recorded import NEWEST, is_usable, version_of
from cloister_api.sessions.provider.client import ProviderClient
from cloister_api.sessions.provider.refusal import SignInRefused
from cloister_api.sessions.provider.settings import OpenIdSettings, read_client_secret
from cloister_api.settings import ApiSettings
from cloister_clients.clock import utc_now
from cloister_clients.findings import Finding, failed, listed, passed, warned
from cloister_clients.kube import KubeClient, KubeConfig, NotFound
from cloister_clients.kube.kinds import of
from cloister_clients.settings import SettingsError, require_file
from cloister_crds.kinds import Container, Enclave


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
    """Print the certificate that clients of enclaves must trust, PEM."""
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


EXPIRES_SOON = timedelta(days=30)
"""Rest of the authority's validity from which on somebody should look."""


async def checks(path: Path) -> list[Finding]:
    """Check the API's settings, and from this machine what they name."""
    try:
        settings = ApiSettings.read(path)
    except SettingsError as error:
        return [failed("settings of the api", str(error), "correct the file")]
    found = [passed("settings of the api", f"{path} is valid"), _material(settings)]
    found.append(await asyncio.to_thread(_ledger, settings))
    if settings.certificates is not None:
        found.append(_issuer(settings))
    if settings.dashboard is not None and settings.dashboard.oidc is not None:
        found.append(await _provider(settings.dashboard.oidc))
    return found


def _material(settings: ApiSettings) -> Finding:
    """Read the key material."""
    check = "key material"
    try:
        KeyMaterial.read(settings.ledger.key_material)
    except MaterialError as error:
        remedy = "restore it from the backup: without it no key of the ledger can be used"
        return failed(check, str(error), remedy)
    return passed(check, f"{settings.ledger.key_material} can be used")


def _ledger(settings: ApiSettings) -> Finding:
    """Read which migration the ledger has, without changing it."""
    check = "ledger"
    try:
        place = place_of(settings.ledger)
    except LedgerError as error:
        return failed(check, str(error), "correct ledger.urlFile")
    if isinstance(place, Path) and not place.exists():
        return warned(check, f"{place} does not exist", "start the API once, which creates it")
    engine = open_to_read(place)
    try:
        with engine.connect() as connection:
            present, usable = version_of(connection), is_usable(connection)
    except (SQLAlchemyError, OSError) as error:
        reason = str(getattr(error, "orig", error)).splitlines()[0]
        remedy = "see whether the database runs, and whether this machine may connect to it"
        return failed(check, f"{display_name(place)} does not respond: {reason}", remedy)
    finally:
        engine.dispose()
    if present > NEWEST and not usable:
        remedy = f"upgrade cloister: this version knows {NEWEST}"
        return failed(check, f"{display_name(place)} is of a newer version, {present}", remedy)
    if not usable:
        return warned(
            check,
            f"{display_name(place)} is at migration {present or '(none)'}, not {NEWEST}",
            "start the API of this version, which migrates it; have a backup before",
        )
    return passed(check, f"{display_name(place)} responds, at migration {present}")


def _issuer(settings: ApiSettings) -> Finding:
    """Read every key and certificate of the issuer."""
    check = "issuer of certificates"
    try:
        check_issuer(settings.certificates, development=False)
        authority = authority_of(settings.certificates, development=False)
    except AuthorityError as error:
        return failed(check, str(error), "correct certificates, or create what is missing")
    if authority is not None:
        expires = authority.certificates[0].not_valid_after_utc
        if expires - utc_now() < EXPIRES_SOON:
            remedy = "create its successor: docs/runbooks/CloisterAuthorityExpires.md"
            return warned(check, f"the own authority expires at {expires:%Y-%m-%d}", remedy)
    return passed(check, "its keys and certificates can be used")


async def _provider(settings: OpenIdSettings) -> Finding:
    """Read the documents of the OpenID provider, and the client's secret."""
    check = "OpenID provider"
    try:
        require_file("dashboard.oidc.caFile", settings.ca_file)
        read_client_secret(settings)
        client = ProviderClient(settings, utc_now)
    except SettingsError as error:
        return failed(check, str(error), "correct dashboard.oidc")
    try:
        keys = await client.keys()
    except SignInRefused as error:
        return failed(check, error.detail, "compare dashboard.oidc with the provider's document")
    finally:
        await client.aclose()
    return passed(check, f"{settings.issuer} responds and has {len(keys)} keys")


AGENT: Final = "cloister-uninstall-check"


@click.command("uninstall-check")
@kubeconfig_option
@click.option(
    "--restore-command",
    default="",
    metavar="COMMAND",
    help="How a release that is not uninstalled can be upgraded again; the refusal names it.",
)
def uninstall_check(kubeconfig: Path | None, restore_command: str) -> None:
    """Fail while there are Containers or Enclaves: without Cloister they would run on unmanaged."""
    containers, enclaves = finish(remaining(kubeconfig))
    if why := refusal(containers, enclaves, restore_command):
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


def refusal(containers: Sequence[str], enclaves: Sequence[str], restore_command: str = "") -> str:
    """Return why Cloister may not be uninstalled, with the remedy; empty if it may.

    Parameters
    ----------
    containers, enclaves
        What there is, as ``namespace/name``.
    restore_command
        Command of Helm that keeps the release; empty if nothing was installed by Helm.
    """
    keep = f". To keep Cloister, run `{restore_command}`; until then helm upgrade is refused"
    keep = keep if restore_command else ""
    if containers:
        return (
            f"Cloister is not uninstalled while there are Containers ({listed(containers)}): their "
            "enclaves would run on with nobody to update, meter or end them. Delete them first "
            "(kubectl delete ctr --all -n NAMESPACE) and uninstall again, or uninstall with "
            f"--no-hooks, which skips this check{keep}"
        )
    if enclaves:
        return (
            f"Cloister is not uninstalled while Enclaves end ({listed(enclaves)}): without it "
            "their finalizers would keep them. Wait until kubectl get encl -A shows none, and "
            f"uninstall again{keep}"
        )
    return ""
