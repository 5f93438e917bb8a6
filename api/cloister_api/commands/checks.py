"""What ``cloister doctor`` checks of the API's settings: keys, ledger, issuer, OpenID provider."""

import asyncio
from datetime import timedelta
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from cloister_api.certificates.authority import AuthorityError
from cloister_api.certificates.issuer import authority_of, check_issuer
from cloister_api.ledger.database import LedgerError, display_name, open_to_read, place_of
from cloister_api.ledger.keys.key_material import KeyMaterial, MaterialError
from cloister_api.ledger.migrations.recorded import NEWEST, is_usable, version_of
from cloister_api.sessions.provider.client import ProviderClient
from cloister_api.sessions.provider.refusal import SignInRefused
from cloister_api.sessions.provider.settings import OpenIdSettings, read_client_secret
from cloister_api.settings import ApiSettings
from cloister_clients.clock import utc_now
from cloister_clients.findings import Finding, failed, passed, warned
from cloister_clients.settings import SettingsError, require_file

__all__ = ["checks"]

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
