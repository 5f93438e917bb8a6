"""Settings of the OpenID provider, the secret that they name, and host names in settings."""

import re
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from cloister_clients.address_guard import Guard
from cloister_clients.settings import SettingsError, SettingsSection

HOST = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
"""A host name in lower case (RFC 1123)."""


def is_host(text: str) -> bool:
    """Return whether a text is a host name without a final dot, or an address."""
    try:
        ip_address(text)
    except ValueError:
        return re.fullmatch(HOST, text) is not None
    return True


def is_local(hostname: str) -> bool:
    """Return whether a host name is this machine for every browser."""
    if hostname == "localhost":
        return True
    try:
        return ip_address(hostname).is_loopback
    except ValueError:
        return False


CALLBACK = "/session/callback"
"""Path of the dashboard to which the provider sends the browser back."""

Scope = Annotated[str, Field(pattern=r"^[!#-\[\]-~]{1,128}$")]
"""A scope (RFC 6749, section 3.3)."""


class OpenIdSettings(SettingsSection):
    """The OpenID provider that signs people in."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    """Its name as people know it, such as Acme SSO. Required."""
    issuer: Annotated[str, Field(max_length=512)]
    """Its issuer, exactly as its discovery document has it; https, or http on 127.0.0.1 or
    localhost. Required."""
    client_id: Annotated[str, Field(pattern=r"^[ -~]{1,255}$")]
    """Identifier of the dashboard at the provider. Required."""
    client_secret_file: Path
    """File with the client's secret; read at each sign-in, so that it can be changed without a
    restart. Required."""
    scopes: Annotated[tuple[Scope, ...], Field(max_length=20)] = ("openid", "email")
    """What is asked for; openid must be among them. Default openid, email."""
    username_claim: Annotated[str, Field(pattern=r"^[!-~]{1,64}$")] = "email"
    """Claim that names the user. email counts only where email_verified is true. Default email."""
    username_prefix: Annotated[str, Field(pattern=r"^[!-~]{0,100}$")] = ""
    """What stands before it in spec.members, as in kube-apiserver. Default nothing."""
    ca_file: Path | None = None
    """PEM file with the only certificate authorities to trust; unset means the public ones."""
    allow_private: tuple[str, ...] = ()
    """Hosts of the provider, ``host`` or ``host:port``, that may have private addresses."""
    timeout_seconds: Annotated[float, Field(gt=0, le=60)] = 10.0
    """Longest time of one request to the provider, in seconds. Default 10."""

    @field_validator("scopes")
    @classmethod
    def with_openid(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        """Refuse scopes for which a provider sends no ID token.

        Raises
        ------
        ValueError
            When openid is missing.
        """
        if "openid" not in value:
            raise ValueError("openid is missing, without which the provider names nobody; add it")
        return value

    @field_validator("issuer")
    @classmethod
    def reached_by_tls(cls, value: str) -> str:
        """Refuse an issuer that no discovery document can have, or that is reached without TLS.

        Raises
        ------
        ValueError
            When it is not such an address.
        """
        try:
            parts = urlsplit(value)
            host = parts.hostname or ""
            port = parts.port
        except ValueError as error:
            raise ValueError(f"{value} is not an address: {error}") from error
        if port == 0 or not is_host(host) or parts.username or "?" in value or "#" in value:
            raise ValueError(
                f"{value} is not an issuer; write what the provider's document "
                "/.well-known/openid-configuration has as issuer, such as https://id.example.com"
            )
        if parts.scheme == "https" or (parts.scheme == "http" and is_local(host)):
            return value
        raise ValueError(
            f"{value} is neither https nor http on 127.0.0.1 or localhost, so that anybody on the "
            "way could sign in as anybody; write https"
        )

    @property
    def is_local(self) -> bool:
        """Whether the provider is reached without TLS, on this machine."""
        return self.issuer.startswith("http:")

    def guard(self) -> Guard:
        """Build the guard of these settings; a provider of this machine needs no naming."""
        if not self.is_local:
            return Guard(allow_private=frozenset(self.allow_private))
        parts = urlsplit(self.issuer)
        shown = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        here = f"{shown}:{parts.port or 80}"
        return Guard(
            allow_private=frozenset({*self.allow_private, here}), plain_http=frozenset({here})
        )

    def anchored(self, directory: Path) -> Self:
        """Return the settings with paths relative to a directory made absolute."""
        return self.model_copy(
            update={
                "client_secret_file": (directory / self.client_secret_file).absolute(),
                "ca_file": self.ca_file and (directory / self.ca_file).absolute(),
            }
        )


def read_client_secret(settings: OpenIdSettings) -> str:
    """Read the client's secret; no error contains anything of the file.

    Raises
    ------
    SettingsError
        When the file cannot be read or holds something else.
    """
    path, setting = settings.client_secret_file, "dashboard.oidc.clientSecretFile"
    try:
        secret = path.read_bytes().strip().decode("ascii")
    except OSError as error:
        raise SettingsError(
            f"{setting}: {path}: {error.strerror}; provide the file, or correct the setting"
        ) from error
    except UnicodeDecodeError as error:
        raise SettingsError(
            f"{setting}: {path} is not text; write the client's secret as the provider shows it"
        ) from error
    if not secret or not secret.isprintable():
        raise SettingsError(
            f"{setting}: {path} holds no secret of one line; write the client's secret as the "
            "provider shows it"
        )
    return secret
