"""Settings of certificates: who signs, by which account, how names are proven."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self, TypeVar

from pydantic import Field, model_validator

from cloister_clients.settings import SettingsSection

HOUR = 3_600
DAY = 86_400
SERVER = r"^(\d{1,3}(\.\d{1,3}){3}|\[[0-9a-f:]+\]):\d{1,5}$"
DOMAIN = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$"


class IssuerKind(StrEnum):
    """Who signs."""

    OWN = "own"
    """An authority of this installation, which clients must be configured to trust."""
    ACME = "acme"
    """An authority that speaks ACME (RFC 8555), such as a public one."""


class OwnAuthoritySettings(SettingsSection):
    """An own authority, for development and closed networks."""

    certificate: Path
    """File with its certificate, PEM; intermediate ones may follow. `cloister ca create` creates
    it."""
    key: Path
    """File with its private key, PEM, mode 0600."""
    lifetime_seconds: Annotated[int, Field(ge=60, le=398 * DAY)] = 30 * DAY
    """Validity of a signed certificate, in seconds. Default 30 days."""


Server = Annotated[str, Field(pattern=SERVER)]
"""Address and port of a name server, such as 192.0.2.53:53."""


class ChallengeDnsSettings(SettingsSection):
    """Where the proofs of host names are published (RFC 2136, with TSIG)."""

    zones: Annotated[tuple[Annotated[str, Field(pattern=DOMAIN)], ...], Field(min_length=1)]
    """Zones that may be written. Custom domains point into the first one by a CNAME."""
    server: Server
    """Primary name server, which accepts the updates."""
    key_name: Annotated[str, Field(min_length=1)]
    """Name of the TSIG key."""
    key_file: Path
    """File with the key in base64."""
    key_algorithm: Annotated[str, Field(pattern=r"^hmac-sha(224|256|384|512)$")] = "hmac-sha256"
    """Algorithm of the key. Default hmac-sha256."""
    check_servers: tuple[Server, ...] = ()
    """Authoritative servers that must serve a record before the authority is asked to check it.
    Default only the primary."""
    resolvers: tuple[Server, ...] = ()
    """Resolvers of the CNAMEs of custom domains. Default the machine's own."""
    served_within_seconds: Annotated[float, Field(gt=0)] = 120.0
    """How long it may take until a record is served, in seconds. Default 120."""
    ttl: Annotated[int, Field(ge=1)] = 60
    """Time to live of the records, in seconds. Default 60."""


class RateWindow(SettingsSection):
    """A number of orders within a time."""

    count: Annotated[int, Field(ge=1)]
    """How many."""
    seconds: Annotated[int, Field(ge=1)]
    """Within how many seconds."""


class AcmeLimits(SettingsSection):
    """Rate limits of the authority. The defaults are those of Let's Encrypt, less a reserve."""

    orders: RateWindow = RateWindow(count=270, seconds=3 * HOUR)
    """Orders of the account. Default 270 in 3 hours (of 300)."""
    domain: RateWindow = RateWindow(count=45, seconds=7 * DAY)
    """Orders for names of one registered domain. Default 45 in 7 days (of 50); ask the authority
    for a higher one for your own domain."""
    names: RateWindow = RateWindow(count=4, seconds=7 * DAY)
    """Orders for exactly the same names. Default 4 in 7 days (of 5)."""
    organization_percent: Annotated[int, Field(ge=1, le=100)] = 20
    """Part of `orders` and `domain` that one organization may use for new enclaves, in percent.
    Default 20. Renewals count towards it and never wait for it."""


class AcmeSettings(SettingsSection):
    """An account at an authority that speaks ACME."""

    directory: Annotated[str, Field(pattern=r"^https://")]
    """Address of its directory."""
    account_key: Path
    """File with the account's private key, PEM, mode 0600. `cloister ca account-key` creates it."""
    terms_of_service_agreed: bool = False
    """Whether you agree to the authority's terms; needed."""
    contact: tuple[Annotated[str, Field(pattern=r"^mailto:\S+@\S+$")], ...] = ()
    """Addresses that the authority may write to, such as mailto:ops@example.com. Default none."""
    ca_bundle: Path | None = None
    """Certificates that the authority's own must lead to, PEM; unset means the public ones."""
    dns: ChallengeDnsSettings
    """Where host names are proven."""
    limits: AcmeLimits = Field(default_factory=AcmeLimits)
    """Rate limits of the authority."""
    first_retry_seconds: Annotated[float, Field(gt=0)] = 30.0
    """Backoff after the first failure of an order, in seconds; it doubles. Default 30."""
    attempts: Annotated[int, Field(ge=1)] = 8
    """Failures after which an order is given up. Default 8, about two hours."""

    @model_validator(mode="after")
    def agreed(self) -> Self:
        """Refuse an account whose terms of service are not agreed to.

        Raises
        ------
        ValueError
            When they are not.
        """
        if not self.terms_of_service_agreed:
            raise ValueError("read the terms of the authority, then set termsOfServiceAgreed: true")
        return self


class CertificateSettings(SettingsSection):
    """How certificates of enclaves are issued."""

    issuer: IssuerKind
    """own or acme."""
    own: OwnAuthoritySettings | None = None
    """The own authority; needed with issuer own, and for nothing else."""
    acme: AcmeSettings | None = None
    """The account; needed with issuer acme, and for nothing else."""
    requests_per_hour: Annotated[int, Field(ge=1)] = 12
    """New requests of one enclave within an hour; more are answered with 429. Default 12."""
    unknown_per_second: Annotated[float, Field(gt=0, le=1_000_000)] = 100.0
    """Tokens per second, by replica, that the API server is asked about, and ten times as many at
    once; more are 429. A token that was judged lately does not count. Default 100."""

    @model_validator(mode="after")
    def complete(self) -> Self:
        """Refuse an issuer without its section, and a section that nothing reads.

        Raises
        ------
        ValueError
            When the section is missing, or one is superfluous.
        """
        for kind in IssuerKind:
            present = getattr(self, kind.value) is not None
            if present != (kind is self.issuer):
                remedy = "remove it" if present else "add it"
                raise ValueError(f"issuer is {self.issuer.value}; {kind.value}: {remedy}")
        return self

    def anchored(self, directory: Path) -> Self:
        """Return the settings with paths relative to a directory made absolute."""
        own = self.own and anchored(self.own, directory, "certificate", "key")
        acme = self.acme and anchored(self.acme, directory, "account_key", "ca_bundle")
        if acme:
            dns = anchored(acme.dns, directory, "key_file")
            acme = acme.model_copy(update={"dns": dns})
        return self.model_copy(update={"own": own, "acme": acme})


S = TypeVar("S", bound=SettingsSection)


def anchored(section: S, directory: Path, *names: str) -> S:
    """Return a section with paths relative to a directory made absolute."""
    paths = {name: getattr(section, name) for name in names}
    return section.model_copy(
        update={name: path and (directory / path).absolute() for name, path in paths.items()}
    )
