"""Which host names a certificate may be signed for: those that its Container has at that moment."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from cloister_crds.kinds.container import Container
from cloister_crds.kinds.domain import Domain
from cloister_crds.kinds.hostnameclaim import HostnameClaim
from cloister_crds.kinds.organization import Organization
from cloister_crds.lifecycle.names.domains import may_serve
from cloister_crds.lifecycle.names.hostnames import generated_hostnames, is_below, is_held_by

__all__ = ["CertificateRequester", "refusal_of"]


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
    """Return why no certificate may be signed for a host name; empty = it may.

    Parameters
    ----------
    hostname
        The host name, which the Enclave serves.
    requester
        The Enclave.
    claim
        The claim of the host name; None = there is none.
    domain
        The Domain of the namespace with the host name; None = there is none.
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
        return f"{hostname} is no generated host name of container {container.metadata.name}"
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
