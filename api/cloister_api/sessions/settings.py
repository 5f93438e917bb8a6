"""Settings of the dashboard."""

from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from cloister_api.sessions.provider.settings import OpenIdSettings, is_host, is_local
from cloister_clients.settings import SettingsError, SettingsSection
from cloister_crds.lifecycle.names.hostnames import is_below

USUAL_PORTS = {"https": 443, "http": 80}
"""Ports that browsers leave out."""


class DashboardListenSettings(SettingsSection):
    """Where the dashboard listens, apart from the API; TLS is terminated in front of it."""

    host: str = "127.0.0.1"
    """Address to bind. Default 127.0.0.1."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8090
    """Port to bind; 0 means a free one, reported in the output. Default 8090."""


class SessionSettings(SettingsSection):
    """How long a sign-in lasts."""

    idle_minutes: Annotated[int, Field(ge=5, le=10_080)] = 480
    """Minutes without a request after which a session ends. Default 480."""
    absolute_minutes: Annotated[int, Field(ge=5, le=43_200)] = 1440
    """Minutes after which a session ends in any case. Default 1440."""
    recent_minutes: Annotated[int, Field(ge=1, le=1440)] = 15
    """Minutes after signing in during which admin keys can be created and revealed. Default 15."""

    @model_validator(mode="after")
    def idle_within_absolute(self) -> Self:
        """Refuse an idle life that never counts.

        Raises
        ------
        ValueError
            When it is longer than the absolute one.
        """
        if self.idle_minutes > self.absolute_minutes:
            raise ValueError(
                f"idleMinutes: {self.idle_minutes} is more than absoluteMinutes "
                f"({self.absolute_minutes}), so no session would reach it; lower it"
            )
        return self


class StreamSettings(SettingsSection):
    """How many pages are kept current at the same time; hidden tabs hold no stream."""

    per_session: Annotated[int, Field(ge=1, le=100)] = 6
    """Streams of one session. Default 6."""
    per_user: Annotated[int, Field(ge=1, le=100_000)] = 30
    """Streams of all sessions of one user, by replica. Default 30."""
    per_process: Annotated[int, Field(ge=1, le=100_000)] = 2000
    """Streams of one replica. Default 2000."""


class DashboardSettings(SettingsSection):
    """The dashboard of organizations."""

    address: str
    """Address that people open: https, or http on 127.0.0.1 or localhost, such as
    https://console.example.com. It must not be below containersDomain, nor that below it."""
    listen: DashboardListenSettings = Field(default_factory=DashboardListenSettings)
    """Where it listens."""
    one_time_links: bool = True
    """Whether `cloister session link` makes links that sign people in. Default true."""
    session: SessionSettings = Field(default_factory=SessionSettings)
    """How long a sign-in lasts."""
    streams: StreamSettings = Field(default_factory=StreamSettings)
    """How many pages are kept current."""
    oidc: OpenIdSettings | None = None
    """The OpenID provider that signs people in; unset means only one-time links."""

    @field_validator("address")
    @classmethod
    def reachable_safely(cls, value: str) -> str:
        """Refuse an address at which browsers keep no secure cookie.

        Raises
        ------
        ValueError
            When it is not an address, or neither https nor of this machine.
        """
        try:
            parts = urlsplit(value)
            host, port = parts.hostname or "", parts.port
        except ValueError as error:
            raise ValueError(f"{value} is not an address: {error}") from error
        if not is_host(host) or parts.username or parts.query or parts.fragment:
            raise ValueError(
                f"{value} is not an address; write one such as https://console.example.com"
            )
        if parts.path not in {"", "/"}:
            raise ValueError(f"{value} has a path; the dashboard is the whole of its address")
        if parts.scheme == "https" or (parts.scheme == "http" and is_local(host)):
            # As browsers write it in Origin and Host.
            shown = f"[{host}]" if ":" in host else host
            usual = port in {None, USUAL_PORTS[parts.scheme]}
            return f"{parts.scheme}://{shown}" + ("" if usual else f":{port}")
        raise ValueError(
            f"{value} is neither https nor http on 127.0.0.1 or localhost: browsers would keep no "
            "cookie of it; put TLS in front of it and write https"
        )

    def require_apart(self, containers_domain: str) -> None:
        """Refuse an address among those of containers: a tenant's page could act as its people.

        Raises
        ------
        SettingsError
            When it is below the domain of containers, or that below it.
        """
        here = self.hostname
        if is_below(here, containers_domain) or is_below(containers_domain, here):
            raise SettingsError(
                f"dashboard.address: {self.address} and the containers below {containers_domain} "
                "are one site for browsers; give the dashboard another domain"
            )

    def anchored(self, directory: Path) -> Self:
        """Return the settings with paths relative to a directory made absolute."""
        return self.model_copy(update={"oidc": self.oidc and self.oidc.anchored(directory)})

    @property
    def host(self) -> str:
        """Host and port of the address, as browsers write them in the header Host."""
        return urlsplit(self.address).netloc.lower()

    @property
    def hostname(self) -> str:
        """Host name of the address."""
        return (urlsplit(self.address).hostname or "").lower()
