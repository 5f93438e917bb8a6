"""Custom domains.

Their DNS records, derived from the installation key (spec 8.12, 8.13), and their checks.
"""

import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256

from cloister_crds.kinds.container import Container
from cloister_crds.kinds.domain import Domain, DomainRecords, DomainStatus
from cloister_crds.kinds.hostnameclaim import HostnameClaim
from cloister_crds.kinds.meta import REQUESTED_AT_ANNOTATION
from cloister_crds.kinds.organization import Organization
from cloister_crds.lifecycle.names.hostnames import generated_hostnames, is_below, is_held_by
from cloister_crds.lifecycle.request import possible_requests
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, condition, merge
from cloister_crds.lifecycle.state.observed import (
    DnsFacts,
    Failed,
    Known,
    LookupResult,
    Need,
    NeedDns,
)

__all__ = [
    "CertificateRequester",
    "DomainDecision",
    "DomainSettings",
    "decide_domain",
    "find_domain",
    "may_serve",
    "records_of",
    "refusal_of",
    "used_by",
]

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
    """Return the records that the owner of a domain must create.

    The TXT value and the name of the ACME proof contain the identifier of the Organization, which a
    restore keeps: another organization that gets the same slug later inherits neither.

    Parameters
    ----------
    before
        Present status of the Domain: one that was verified by the records of an earlier release,
        which contained no identifier, keeps them. None means a new one.
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


LOOK_PAUSE = timedelta(seconds=10)
"""Shortest time between two checks of a Domain, however often one is requested."""
USED_BY_LIMIT = 1000
"""How many names status.usedBy holds; the schema's bound."""


@dataclass(frozen=True, slots=True)
class DomainDecision:
    """The decision of a reconcile of a Domain."""

    status: DomainStatus
    """Its next status."""
    need: NeedDns | None = None
    """What to look up now; None if there is nothing."""
    forget: NeedDns | None = None
    """Lookup whose result is used up; None if there is none."""
    requeue_after: timedelta | None = None
    """Time until the next reconcile; None means on changes only."""


def used_by(domain: str, containers: Iterable[Container]) -> tuple[Container, ...]:
    """Return the Containers of a namespace that request a domain or still serve it, by name."""
    users = (
        container
        for container in containers
        if domain == container.status.domain
        or any(domain == each.custom_domain for each in possible_requests(container))
    )
    return tuple(sorted(users, key=lambda each: each.metadata.name))


def find_domain(host: str, domains: Iterable[Domain]) -> Domain | None:
    """Return the Domain of a host name; of several, a verified one."""
    found = [each for each in domains if each.spec.domain == host]
    return max(found, key=lambda each: each.status.verified, default=None)


def may_serve(domain: Domain | None, *, now: datetime, grace: timedelta) -> bool:
    """Return whether requests for a custom domain are admitted to its container.

    Parameters
    ----------
    domain
        The Domain; None if there is none.
    now
        The time, in UTC.
    grace
        Grace period of one that lost its TXT record, where its status does not say when it ends.
    """
    if domain is None:
        return False
    lost, until = domain.status.lost_at, domain.status.served_until
    if until is None and lost is not None:
        until = lost + grace
    return domain.status.verified or (until is not None and now < until)


def decide_domain(
    domain: Domain,
    organization: Organization | None,
    containers: Iterable[Container],
    results: Mapping[Need, LookupResult],
    settings: DomainSettings,
    now: datetime,
) -> DomainDecision:
    """Decide the status of a Domain and whether to check DNS.

    Parameters
    ----------
    organization
        Its Organization; None if no Organization owns the namespace.
    containers
        Those of the namespace that request the domain or still serve it; more do no harm.
    now
        The time, in UTC, whole seconds.
    """
    host, before = domain.spec.domain, domain.status
    status = before.model_copy(
        update={
            "observed_generation": domain.metadata.generation,
            "used_by": tuple(
                each.metadata.name for each in used_by(host, containers)[:USED_BY_LIMIT]
            ),
        }
    )
    refusal = _refusal(host, organization, settings.containers_domain)
    if refusal is not None or organization is None:
        lost = now if before.verified else before.lost_at
        refused = status.model_copy(
            update={"verified": False, "verified_at": None, "lost_at": lost}
        )
        until = lost + settings.grace if lost is not None else now
        found = _served_until(refusal or (), until) if now < until else refusal or ()
        return DomainDecision(
            _with_conditions(refused, domain, found, settings, now),
            requeue_after=until - now if now < until else None,
        )
    records = records_of(host, organization=organization, settings=settings, before=before)
    status = status.model_copy(update={"records": records})
    requested = domain.metadata.annotations.get(REQUESTED_AT_ANNOTATION, "")
    wait = _until_check(before, requested, settings, now)
    if wait is not None:
        return DomainDecision(
            _unchanged(status, domain, settings, now),
            requeue_after=min(wait, _next(status, settings, now)),
        )
    stamp = before.checked_at.isoformat() if before.checked_at else ""
    need = NeedDns(domain=host, txt_name=records.txt_name, since=stamp, request=requested)
    result = results.get(need)
    if result is None:
        return DomainDecision(_unchanged(status, domain, settings, now), need=need)
    seen = status.model_copy(update={"checked_at": now, "last_handled_request": requested})
    failed = result if isinstance(result, Failed) else None
    if isinstance(result, Known) and isinstance(result.value, DnsFacts):
        facts = result.value
        # A request that came meanwhile may be about a newer record: the next check is for it.
        seen = seen.model_copy(update={"last_handled_request": facts.request})
        seen = _checked(seen, records, facts, now)
    after = _with_conditions(seen, domain, _conditions(seen, failed, settings, now), settings, now)
    return DomainDecision(after, forget=need, requeue_after=_next(after, settings, now))


def _until_check(
    before: DomainStatus, requested: str, settings: DomainSettings, now: datetime
) -> timedelta | None:
    """Return the time until the next check; None if it is due."""
    checked = before.checked_at
    if checked is None or checked > now:
        # A check in the future is from before the clock was set back.
        return None
    is_requested = requested != before.last_handled_request
    pause = min(LOOK_PAUSE, settings.interval) if is_requested else settings.interval
    left = checked + pause - now
    return left if left > timedelta() else None


def _served_until(
    refusal: Iterable[ConditionUpdate], until: datetime
) -> tuple[ConditionUpdate, ...]:
    """Add to a refusal until when the domain is served; the end of that is a change of status."""
    text = f" It is served until {until:%Y-%m-%d %H:%M} UTC, and nothing new can use it."
    return tuple(replace(each, message=each.message + text) for each in refusal)


def _refusal(
    host: str, organization: Organization | None, containers_domain: str
) -> tuple[ConditionUpdate, ...] | None:
    """Return the conditions of a domain that an organization cannot have; None if it can."""
    if organization is None:
        return _stalled("OrganizationNotFound", "No Organization owns this namespace.")
    if is_below(host, containers_domain):
        return _stalled(
            "DomainReserved",
            f"{host} is below {containers_domain}, whose names Cloister generates; use a name of "
            "a domain of your own.",
        )
    suffixes = organization.spec.entitlements.domain_suffixes
    if any(host.endswith(f".{each}") for each in suffixes):
        return None
    allowed = ", ".join(f"*.{each}" for each in suffixes) or "none"
    return _stalled(
        "EntitlementRequired",
        f"{host} is not below a domain suffix of organization {organization.metadata.name} "
        f"(allowed: {allowed}); use a name below one, or ask the administrator.",
    )


def _checked(
    status: DomainStatus, records: DomainRecords, facts: DnsFacts, now: datetime
) -> DomainStatus:
    """Apply the records found in DNS to the status."""
    has_text = records.txt_value in facts.texts
    has_alias = records.cname_target in facts.aliases
    change: dict[str, object] = {"cname_configured": has_alias, "txt_configured": has_text}
    if status.verified and not has_text:
        change |= {"verified": False, "verified_at": None, "lost_at": now}
    elif not status.verified and has_text and has_alias:
        change |= {"verified": True, "verified_at": now, "lost_at": None}
    return status.model_copy(update=change)


def _conditions(
    status: DomainStatus, failed: Failed | None, settings: DomainSettings, now: datetime
) -> tuple[ConditionUpdate, ...]:
    """Return the conditions of the Domain."""
    records = status.records or DomainRecords()
    if status.verified:
        text = "Both records were seen; only the loss of the TXT record undoes that."
        if status.cname_configured is False:
            text = (
                f"Verified, but its CNAME record no longer points to {records.cname_target}: "
                "requests do not arrive here."
            )
        return (ConditionUpdate("Ready", status=True, reason="DomainVerified", message=text),)
    if status.lost_at is not None:
        until = status.lost_at + settings.grace
        wanted = f"Create the TXT record {records.txt_name} with the value {records.txt_value}"
        if status.cname_configured is False:
            wanted += (
                f", and the CNAME record {_host_of(records)} with the target "
                f"{records.cname_target}, which is missing too,"
            )
        if now < until:
            return _stalled(
                "DomainLost",
                f"The TXT record is gone. {wanted} before {until:%Y-%m-%d %H:%M} UTC; the domain "
                "is served until then, and nothing new can use it.",
            )
        return _stalled("DomainDropped", f"The TXT record has been gone for too long. {wanted}.")
    if failed is not None:
        text = f"DNS could not be read: {failed.message}. It is retried."
        return (ConditionUpdate("Ready", status=False, reason="DnsUnavailable", message=text),)
    return (
        ConditionUpdate(
            "Ready",
            status=False,
            reason="DomainNotVerified",
            message=f"Create the TXT record {records.txt_name} with the value {records.txt_value} "
            f"and the CNAME record {_host_of(records)} with the target {records.cname_target} "
            f"(DNS only, not proxied). {_missing(status)}".rstrip(),
        ),
    )


def _host_of(records: DomainRecords) -> str:
    """Return the custom domain that records are for."""
    return records.txt_name.partition(".")[2]


def _missing(status: DomainStatus) -> str:
    """Return what the last check found of the records of a domain that is not verified."""
    if status.checked_at is None:
        return "DNS was not checked yet."
    found = {"TXT record": status.txt_configured, "CNAME record": status.cname_configured}
    missing = [name for name, right in found.items() if right is False]
    right = [name for name, right in found.items() if right]
    if not missing:
        return ""
    text = " and the ".join(missing)
    verb = "were" if len(missing) > 1 else "was"
    others = f", and the {right[0]} was correct" if right else ""
    return f"At the last check the {text} {verb} missing or wrong{others}."


def _stalled(reason: str, message: str) -> tuple[ConditionUpdate, ...]:
    return tuple(
        ConditionUpdate(kind, status=kind == "Stalled", reason=reason, message=message)
        for kind in ("Ready", "Stalled")
    )


def _unchanged(
    status: DomainStatus, domain: Domain, settings: DomainSettings, now: datetime
) -> DomainStatus:
    """Return the status between two checks: a failure of the last one stays until the next."""
    ready = condition(status.conditions, "Ready")
    if ready is not None and ready.reason == "DnsUnavailable" and not status.verified:
        failed = ConditionUpdate("Ready", status=False, reason=ready.reason, message=ready.message)
        return _with_conditions(status, domain, (failed,), settings, now)
    return _with_conditions(status, domain, _conditions(status, None, settings, now), settings, now)


def _with_conditions(
    status: DomainStatus,
    domain: Domain,
    updates: Iterable[ConditionUpdate],
    settings: DomainSettings,
    now: datetime,
) -> DomainStatus:
    until = status.lost_at + settings.grace if status.lost_at is not None else None
    conditions = merge(
        domain.status.conditions, updates, generation=domain.metadata.generation, now=now
    )
    return status.model_copy(update={"conditions": conditions, "served_until": until})


def _next(status: DomainStatus, settings: DomainSettings, now: datetime) -> timedelta:
    """Return the time until the next check, or until the end of the grace period."""
    times = [settings.interval]
    if status.checked_at is not None:
        times = [status.checked_at + settings.interval - now]
    if status.lost_at is not None and now < status.lost_at + settings.grace:
        times.append(status.lost_at + settings.grace - now)
    return max(min(times), timedelta(seconds=1))


@dataclass(frozen=True, slots=True)
class CertificateRequester:
    """An Enclave that requests a certificate, and what it belongs to."""

    container: Container
    """Its Container."""
    organization: Organization
    """The Organization of the namespace."""
    debug: bool
    """Whether it is a debug enclave."""
    containers_domain: str
    """Domain of generated host names."""


def refusal_of(
    hostname: str,
    requester: CertificateRequester,
    *,
    claim: HostnameClaim | None,
    domain: Domain | None,
    now: datetime,
) -> str:
    """Return why no certificate may be signed for a host name; empty if it may.

    Parameters
    ----------
    claim
        The claim of the host name; None if there is none.
    domain
        The Domain of the namespace with the host name; None if there is none.
    now
        The time, in UTC.
    """
    container = requester.container
    if is_below(hostname, requester.containers_domain):
        generated = generated_hostnames(
            container,
            requester.organization,
            requester.containers_domain,
            debug=requester.debug,
        )
        if hostname in {generated.internal, generated.preview}:
            return ""
        return f"{hostname} is not a generated host name of container {container.metadata.name}"
    if claim is None or not (is_held_by(claim, container) or _replaces_holder(claim, container)):
        return f"{hostname} is not claimed by container {container.metadata.name} any more"
    if not may_serve(domain, now=now, grace=timedelta()):
        return (
            f"{hostname} may not be served: its Domain is not verified, and was not within the "
            "grace period"
        )
    return ""


def _replaces_holder(claim: HostnameClaim, container: Container) -> bool:
    """Return whether the holder is being replaced: its names pass over once this one is ready."""
    holder = claim.spec.holder
    return (holder.namespace, holder.name) == (
        container.metadata.namespace,
        container.spec.replaces,
    )
