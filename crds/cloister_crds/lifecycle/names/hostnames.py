"""The host names of a Container, and who holds them."""

from cloister_crds.kinds.container import Container
from cloister_crds.kinds.hostnameclaim import HostnameClaim
from cloister_crds.kinds.organization import Organization
from cloister_crds.names import generated_hostname

__all__ = [
    "internal_hostname",
    "is_below",
    "is_held_by",
    "wanted_hostnames",
]


def internal_hostname(
    container: Container, organization: Organization, containers_domain: str
) -> str:
    """Return the generated host name of a Container (spec 4.2).

    Parameters
    ----------
    container
        The Container.
    organization
        The Organization that it belongs to.
    containers_domain
        Domain of the installation's containers.
    """
    return generated_hostname(
        container.display_name,
        organization=organization.metadata.name,
        debug=container.spec.debug,
        containers_domain=containers_domain,
    )


def wanted_hostnames(
    container: Container, organization: Organization | None, containers_domain: str
) -> tuple[str, ...]:
    """Return the host names that spec requests, the public one first.

    Parameters
    ----------
    container
        The Container.
    organization
        The Organization that it belongs to; None = none, and no names.
    containers_domain
        Domain of the installation's containers.
    """
    if organization is None:
        return ()
    generated = internal_hostname(container, organization, containers_domain)
    custom = container.spec.custom_domain
    return (custom, generated) if custom else (generated,)


def is_below(hostname: str, domain: str) -> bool:
    """Return whether a host name is a domain or a name below it."""
    return hostname == domain or hostname.endswith(f".{domain}")


def is_held_by(claim: HostnameClaim, container: Container) -> bool:
    """Return whether a Container holds a claim; a retried create finds its own."""
    holder = claim.spec.holder
    return (holder.namespace, holder.name) == (
        container.metadata.namespace,
        container.metadata.name,
    )
