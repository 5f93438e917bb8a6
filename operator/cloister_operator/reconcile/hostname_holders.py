"""Who holds a host name: by a HostnameClaim, or by the name of its object."""

from cloister_clients.kube.kinds import POD
from cloister_crds.kinds import Container, Enclave, HostnameClaim, Organization
from cloister_crds.kinds.hostnameclaim import ClaimHolder, HostnameClaimSpec
from cloister_crds.kinds.meta import ObjectMeta
from cloister_crds.lifecycle.names.hostnames import container_named_in
from cloister_crds.names import service_name
from cloister_operator.cache.projections import CLAIM, CONTAINER, ENCLAVE
from cloister_operator.context import ProcessContext

__all__ = ["claim_of", "is_served"]


def claim_of(
    context: ProcessContext, hostname: str, namespace: str, organization: Organization | None
) -> HostnameClaim | None:
    """Return the claim of a host name; None = nobody has it.

    Parameters
    ----------
    context
        The informer cache.
    hostname
        The host name.
    namespace
        Namespace of the Container that wants it.
    organization
        Organization of the namespace; None = none.

    Returns
    -------
    HostnameClaim | None
        An object of the cluster; or one without uid, for the Container which the host name spells
        out, when there is such a Container, or a Pod of it still serves.
    """
    entry = context.store.get(CLAIM, "", hostname)
    if entry is not None:
        return context.models.read(HostnameClaim, entry)
    named = organization and container_named_in(
        hostname,
        organization=organization.metadata.name,
        containers_domain=context.decision.containers_domain,
    )
    if not named:
        return None
    holder = ClaimHolder(namespace=namespace, name=named.object_name)
    present = context.store.get(CONTAINER, namespace, named.object_name)
    is_there = present is not None and named.is_it(context.models.read(Container, present))
    if not is_there and not is_served(context, hostname, holder):
        return None
    return HostnameClaim(metadata=ObjectMeta(name=hostname), spec=HostnameClaimSpec(holder=holder))


def is_served(context: ProcessContext, hostname: str, holder: ClaimHolder) -> bool:
    """Return whether a Container, or one that is gone, still has a Pod under a host name.

    The Enclave of a Pod that terminates may be gone; its host names are then not known.
    """
    key = f"{holder.namespace}/{service_name(holder.name)}"
    pods = context.store.by_index(POD, "container", key)
    enclaves = [context.store.get(ENCLAVE, holder.namespace, pod.name) for pod in pods]
    return any(
        each is None or hostname in context.models.read(Enclave, each).spec.hostnames
        for each in enclaves
    )
