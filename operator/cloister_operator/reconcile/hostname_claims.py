"""Who holds a host name, and the reconciler of a HostnameClaim.

That is garbage collection of orphans, whose holder is gone. Only the operator releases claims;
those of a Container that exists by the decision about it.
"""

import logging
from datetime import timedelta

from cloister_clients.kube import NotFound
from cloister_clients.kube.kinds import POD
from cloister_crds.kinds import Container, Enclave, HostnameClaim, Organization
from cloister_crds.kinds.hostnameclaim import ClaimHolder, HostnameClaimSpec
from cloister_crds.kinds.meta import ObjectMeta
from cloister_crds.lifecycle.names.hostnames import container_named_in
from cloister_crds.names import service_name
from cloister_operator.cache.projections import CLAIM, CONTAINER, ENCLAVE
from cloister_operator.context import ProcessContext
from cloister_operator.reconcile.metering import wait_for_age
from cloister_operator.reconcile.results import DONE, Result
from cloister_operator.workqueue.triggers import Key

_POD_RECHECK = timedelta(seconds=5)
"""Time until a claim whose last Pod is terminating is checked again."""

logger = logging.getLogger(__name__)


async def reconcile_claim(context: ProcessContext, key: Key) -> Result:
    """Release a claim when its holder is gone.

    Raises
    ------
    KubeError
        When a write or a confirming read fails; the key is then retried.
    """
    entry = context.store.get(CLAIM, "", key.name)
    claim = context.models.read(HostnameClaim, entry) if entry else None
    if claim is None or _is_held(context, claim):
        return DONE
    wait = wait_for_age(
        claim.metadata.creation_timestamp, context.settings.claim_age_seconds, context.clock()
    )
    if wait is not None:
        return Result(wait)
    if _is_served(context, claim.metadata.name, claim.spec.holder):
        # Requests for the name still reach that Pod: nobody else may have the name yet.
        return Result(_POD_RECHECK)
    if not await _holder_is_gone(context, claim):
        return DONE
    live = await context.writer.refresh(CLAIM, "", key.name)
    if live is None or live["metadata"]["uid"] != claim.metadata.uid:
        return DONE
    logger.info("%s: its holder is gone", key.text)
    await context.writer.delete(
        key,
        CLAIM,
        "",
        key.name,
        uid=claim.metadata.uid,
        resource_version=live["metadata"]["resourceVersion"],
    )
    return Result(wrote=True)


def _is_held(context: ProcessContext, claim: HostnameClaim) -> bool:
    """Return whether the holder exists."""
    holder = claim.spec.holder
    return context.store.get(CONTAINER, holder.namespace, holder.name) is not None


async def _holder_is_gone(context: ProcessContext, claim: HostnameClaim) -> bool:
    """Read the holder live; return whether it is gone. One that exists is added to the cache."""
    holder = claim.spec.holder
    try:
        body = await context.client.get(CONTAINER, holder.name, holder.namespace)
    except NotFound:
        return True
    context.store.put(CONTAINER, body)
    return False


def claim_of(
    context: ProcessContext, hostname: str, namespace: str, organization: Organization | None
) -> HostnameClaim | None:
    """Return the claim of a host name; None if nobody has it.

    Parameters
    ----------
    organization
        Organization of the namespace; None if there is none.

    Returns
    -------
    HostnameClaim | None
        An object of the cluster; or one without uid, for the Container which the host name spells
        out, when there is such a Container, or a Pod of it still serves.
    """
    entry = context.store.get(CLAIM, "", hostname)
    if entry is not None:
        return context.models.read(HostnameClaim, entry)
    # Generated names need no claim as an object: the name itself identifies the Container.
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
    if not is_there and not _is_served(context, hostname, holder):
        return None
    return HostnameClaim(metadata=ObjectMeta(name=hostname), spec=HostnameClaimSpec(holder=holder))


def _is_served(context: ProcessContext, hostname: str, holder: ClaimHolder) -> bool:
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
