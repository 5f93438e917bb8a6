"""The host names of a Container, and who holds them."""

from dataclasses import dataclass

from cloister_crds.kinds.container import Container
from cloister_crds.kinds.hostnameclaim import HostnameClaim
from cloister_crds.kinds.organization import Organization
from cloister_crds.names import (
    distinct_label,
    generated_hostname,
    host_label,
    object_name,
    preview_hostname,
)

__all__ = [
    "GeneratedHostnames",
    "NamedContainer",
    "container_named_in",
    "generated_hostnames",
    "internal_hostname",
    "is_below",
    "is_held_by",
    "wanted_hostnames",
]


@dataclass(frozen=True, slots=True)
class GeneratedHostnames:
    """The host names that a Container has of its own name."""

    internal: str
    """At which it serves (spec 4.2)."""
    preview: str
    """At which a staged update can be tried."""


def generated_hostnames(
    container: Container, organization: Organization, containers_domain: str, *, debug: bool
) -> GeneratedHostnames:
    """Return the generated host names of a Container.

    A Container keeps those of an earlier release, whose labels were made otherwise, as long as its
    status names them.
    """
    earlier, present = (
        GeneratedHostnames(
            *(
                make(
                    container.display_name,
                    organization=organization.metadata.name,
                    debug=debug,
                    containers_domain=containers_domain,
                    label=label,
                )
                for make in (generated_hostname, preview_hostname)
            )
        )
        for label in (distinct_label, host_label)
    )
    return earlier if container.status.internal_domain == earlier.internal else present


def internal_hostname(
    container: Container, organization: Organization, containers_domain: str
) -> str:
    """Return the generated host name of a Container (spec 4.2)."""
    return generated_hostnames(
        container, organization, containers_domain, debug=container.spec.debug
    ).internal


def wanted_hostnames(
    container: Container, organization: Organization | None, containers_domain: str
) -> tuple[str, ...]:
    """Return the host names that spec requests, the public one first.

    Parameters
    ----------
    organization
        The Organization that it belongs to; None if there is none, and no names.
    """
    if organization is None:
        return ()
    generated = internal_hostname(container, organization, containers_domain)
    custom = container.spec.custom_domain
    return (custom, generated) if custom else (generated,)


@dataclass(frozen=True, slots=True)
class NamedContainer:
    """The Container that a generated host name spells out."""

    object_name: str
    """metadata.name that the API gives it."""
    name: str
    """Name of the container."""
    debug: bool
    """Whether it is a debug container."""

    def is_it(self, container: Container) -> bool:
        """Return whether it is this Container, of the namespace of its organization."""
        spelled = (container.metadata.name, container.display_name, container.spec.debug)
        return spelled == (self.object_name, self.name, self.debug)


def container_named_in(
    hostname: str, *, organization: str, containers_domain: str
) -> NamedContainer | None:
    """Return the Container that a generated host name spells out: it has the name without a claim.

    An object is unique by its name, and so is the host name that follows from it; only a Container
    whose object is named otherwise, or whose name is not a DNS label, must claim.

    Returns
    -------
    NamedContainer | None
        None when the host name is a custom domain, or of a preview.
    """
    level = f".{organization}.{containers_domain}"
    name, _, debug = hostname.removesuffix(level).partition(".")
    if not hostname.endswith(level) or debug not in {"", "debug"} or not name:
        return None
    of_debug = bool(debug)
    return NamedContainer(object_name(name, debug=of_debug), name, of_debug)


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
