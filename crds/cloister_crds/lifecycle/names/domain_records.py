"""The DNS records of a custom domain, derived from the installation key (spec 8.12, 8.13)."""

import hmac
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256

from cloister_crds.kinds.domain import DomainRecords, DomainStatus
from cloister_crds.kinds.organization import Organization

__all__ = ["DomainSettings", "records_of"]

_HEX = 32


@dataclass(frozen=True, slots=True)
class DomainSettings:
    """The administrator's settings for custom domains."""

    key: bytes
    """Installation key: nonces and targets are derived from it, the same after every restore."""
    target: str
    """Domain of the targets of CNAME records."""
    service: str
    """Name in the label of TXT records."""
    containers_domain: str
    """Domain of generated host names, which are nobody's custom domains."""
    interval: timedelta
    """Time between two DNS checks."""
    grace: timedelta
    """Grace period in which a domain that lost its TXT record is still served."""


def records_of(
    domain: str,
    *,
    organization: Organization,
    settings: DomainSettings,
    before: DomainStatus | None = None,
) -> DomainRecords:
    """Return the records that the owner of a domain has to create.

    The TXT value and the name of the ACME proof contain the identifier of the Organization, which a
    restore keeps: another organization that gets the same slug later inherits neither.

    Parameters
    ----------
    domain
        The custom domain.
    organization
        The organization.
    settings
        Installation key, target and service.
    before
        Present status of the Domain: one that was verified by the records of an earlier release,
        which contained no identifier, keeps them. None = a new one.
    """
    slug, identity = organization.metadata.name, organization.identifier
    found = DomainRecords(
        txt_name=f"_{settings.service}.{domain}",
        txt_value=_txt(domain, settings, "nonce", slug, identity),
        cname_target=f"{_mac(settings.key, 'target', slug, domain)}.{settings.target}",
        challenge_name=f"_acme-challenge.{domain}",
        challenge_label=_mac(settings.key, "challenge", slug, identity, domain),
    )
    if before is None or before.records is None or not (before.verified or before.lost_at):
        return found
    kept: dict[str, str] = {}
    earlier = _txt(domain, settings, "nonce", slug)
    if before.records.txt_value == earlier:
        kept["txt_value"] = earlier
    shared = sha256(domain.encode()).hexdigest()[:_HEX]
    if before.records.challenge_label in {"", shared}:
        kept["challenge_label"] = shared
    return found.model_copy(update=kept)


def _txt(domain: str, settings: DomainSettings, *parts: str) -> str:
    return f"{settings.service}-verification={domain}:{_mac(settings.key, *parts)}"


def _mac(key: bytes, *parts: str) -> str:
    """Derive a value from the installation key; the parts are separated unambiguously."""
    return hmac.new(key, "\0".join(parts).encode(), "sha256").hexdigest()[:_HEX]
