"""The facts by which requests are judged, from the facade's cache.

Create, relaunch, start and validate have them from here, so that validate finds what they find.
"""

from cloister_api.auth.authenticator import Principal
from cloister_api.cache import CachedContainer, ClusterCache
from cloister_crds.kinds import Container
from cloister_crds.kinds.container import ContainerSpec
from cloister_crds.lifecycle.admission.limits import counted
from cloister_crds.lifecycle.admission.validation import RequestFacts

__all__ = ["facts_of_change", "facts_of_create"]


def facts_of_create(
    cache: ClusterCache,
    principal: Principal,
    name: str,
    spec: ContainerSpec,
    replaced: CachedContainer | None,
) -> RequestFacts:
    """Return the facts of a create, without the release.

    Parameters
    ----------
    cache
        Custom resources in memory.
    principal
        Who sends the request.
    name
        Name of the new container.
    spec
        Its spec.
    replaced
        The container that it replaces, which does not count; None = none.
    """
    others = (held.container for held in cache.containers_of(principal.namespace))
    counting = counted(others, cache.running_of(principal.namespace))
    old = replaced.container.metadata.uid if replaced is not None else None
    return _facts(cache, principal, name, spec, rank=sum(uid != old for _, uid in counting))


def facts_of_change(
    cache: ClusterCache, principal: Principal, container: Container, spec: ContainerSpec
) -> RequestFacts:
    """Return the facts of a relaunch or start, without the release; it is within the limit already.

    Parameters
    ----------
    cache
        Custom resources in memory.
    principal
        Who sends the request.
    container
        The container.
    spec
        What it changes to.
    """
    return _facts(cache, principal, container.display_name, spec, rank=None)


def _facts(
    cache: ClusterCache, principal: Principal, name: str, spec: ContainerSpec, *, rank: int | None
) -> RequestFacts:
    return RequestFacts(
        name=name,
        spec=spec,
        organization=principal.organization,
        hosts=cache.host_list(),
        secrets=cache.secrets_of(principal.namespace),
        ssh_keys=cache.ssh_keys_of(principal.namespace),
        domains=cache.domains_of(principal.namespace),
        repositories=cache.repositories,
        rank=rank,
    )
