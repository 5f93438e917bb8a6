"""Gathers what decisions depend on, only from the informer cache."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from cloister_clients.kube.kinds import ENDPOINT_SLICE, NAMESPACE, NODE, POD, SERVICE
from cloister_crds.kinds import (
    Container,
    Domain,
    Enclave,
    Host,
    HostnameClaim,
    Organization,
    RegistryCredential,
    Secret,
    SSHKey,
)
from cloister_crds.lifecycle.admission.limits import Place, rank, running_places
from cloister_crds.lifecycle.metering import has_departed
from cloister_crds.lifecycle.replacement import inherits_hostnames, successor
from cloister_crds.lifecycle.state.observed import Observed, RouteFacts, ServiceFacts
from cloister_crds.names import (
    ENCLAVE_LABEL,
    ORGANIZATION_LABEL,
    distinct_label,
    preview_service_name,
    service_name,
    shells_service_name,
)
from cloister_operator.cache.pod_projection import node_is_gone, read_pod, read_route
from cloister_operator.cache.projections import (
    CLAIM,
    CONTAINER,
    DOMAIN,
    ENCLAVE,
    HOST,
    ORGANIZATION,
    REGISTRY_CREDENTIAL,
    SECRET_KIND,
    SSH_KEY,
)
from cloister_operator.context import ProcessContext
from cloister_operator.reconcile.hostname_claims import claim_of
from cloister_operator.reconcile.results import deployment_of
from cloister_operator.rollout.enclave_status import evaluate_enclave
from cloister_operator.rollout.pod_facts import PodFacts
from cloister_operator.rollout.rollout_state import RolloutState


def observe(context: ProcessContext, container: Container, now: datetime) -> Observed:
    """Gather everything that a decision about a Container depends on."""
    store, models = context.store, context.models
    namespace, name = container.metadata.namespace or "", container.metadata.name
    organization = organization_of(context, namespace)
    everything = [
        models.read(Enclave, entry)
        for entry in store.by_index(ENCLAVE, "container", f"{namespace}/{name}")
    ]
    departed = tuple(each for each in everything if _has_departed(context, each))
    enclaves = [each for each in everything if each not in departed]
    deployment = deployment_of(context, namespace, container.spec.repo)
    related = _related(context, container)
    observed = Observed(
        container=container,
        settings=context.decision,
        organization=organization,
        hosts=tuple(models.read(Host, entry) for entry in store.entries(HOST)),
        enclaves=tuple(with_newest_status(context, each, now)[0] for each in enclaves),
        departed=departed,
        pods=frozenset(
            each.metadata.name
            for each in enclaves
            if store.get(POD, namespace, each.metadata.name) is not None
        ),
        cordoned=frozenset(each.metadata.name for each in enclaves if _is_cordoned(context, each)),
        incomplete=frozenset(
            each.metadata.name
            for each in enclaves
            if context.memory.attempt(each).children_complete is False
        ),
        successor=successor(container, related),
        inherits_hostnames=inherits_hostnames(container, related),
        rank=rank(
            container,
            context.order.of(namespace),
            related,
            running_of(context, namespace, related),
        ),
        secrets=tuple(
            models.read(Secret, entry) for entry in store.entries(SECRET_KIND, namespace)
        ),
        domains=tuple(models.read(Domain, entry) for entry in store.entries(DOMAIN, namespace)),
        credentials=tuple(
            models.read(RegistryCredential, entry)
            for entry in store.entries(REGISTRY_CREDENTIAL, namespace)
        ),
        ssh_keys=tuple(models.read(SSHKey, entry) for entry in store.entries(SSH_KEY, namespace)),
        deployment=deployment,
        service=_service(context, namespace, service_name(name)),
        shells=_service(context, namespace, shells_service_name(name)),
        preview=_service(context, namespace, preview_service_name(name)),
        routes=_routes(context, namespace, name),
        results=context.resolver.results,
        refused=context.memory.refused(container),
    )
    # Which request counts, and so which host names, follows from the rest.
    named = RolloutState(observed, now).named_hostnames
    return replace(observed, claims=_claims(context, observed, named))


def _related(context: ProcessContext, container: Container) -> tuple[Container, ...]:
    """Gather a Container and all of its namespace that replace another one or are replaced.

    Only these matter for a replacement, and they are few: a large namespace is not read as a whole.
    """
    store, namespace = context.store, container.metadata.namespace or ""
    heirs = store.by_index(CONTAINER, "replaces", namespace)
    read = [context.models.read(Container, entry) for entry in heirs]
    found = {container.metadata.name: container} | {each.metadata.name: each for each in read}
    for name in {each.spec.replaces for each in found.values()} - found.keys():
        entry = store.get(CONTAINER, namespace, name) if name else None
        if entry is not None:
            found[entry.name] = context.models.read(Container, entry)
    return tuple(found.values())


def running_of(
    context: ProcessContext, namespace: str, containers: Iterable[Container]
) -> dict[str, Place]:
    """Return places by uid of Containers that still have a Pod (`limits.rank`).

    Of those that count anyway only the replaced ones are looked at, which are few.
    """
    store = context.store
    names = {each.spec.replaces for each in containers if each.spec.replaces}
    names |= {each.name for each in store.by_index(CONTAINER, "deleting", namespace)}
    pods = (
        *store.by_index(POD, "deleting", namespace),
        *context.departed.pods(namespace),
        *(
            pod
            for name in names
            for pod in store.by_index(POD, "container", f"{namespace}/{service_name(name)}")
        ),
    )
    # The garbage collector may have deleted the Enclave before its Pod has terminated.
    found = ((store.get(ENCLAVE, namespace, pod.name) or pod).place for pod in pods)
    return running_places(place for place in found if place is not None)


def organization_of(context: ProcessContext, namespace: str) -> Organization | None:
    """Return the Organization that owns a namespace.

    None if no Organization names it, or it does not carry the label of the one that does: naming
    somebody else's namespace gives no right to it.
    """
    entry = context.store.get(NAMESPACE, "", namespace)
    if entry is None:
        return None
    label = entry.decode()["metadata"].get("labels", {}).get(ORGANIZATION_LABEL)
    for each in context.store.by_index(ORGANIZATION, "namespace", namespace):
        if distinct_label(each.name) == label:
            return context.models.read(Organization, each)
    return None


def pod_facts(context: ProcessContext, enclave: Enclave) -> PodFacts | None:
    """Read the Pod of an Enclave; None if the cache lacks it, or it has another owner."""
    namespace = enclave.metadata.namespace or ""
    entry = context.store.get(POD, namespace, enclave.metadata.name)
    if entry is None:
        return None
    body = entry.decode()
    owners = body["metadata"].get("ownerReferences", ())
    if all(owner["uid"] != enclave.metadata.uid for owner in owners):
        return None
    node = context.store.get(NODE, "", body["spec"]["nodeName"])
    gone = node_is_gone(body, node.decode() if node else None)
    return read_pod(body, enclave.spec.summary.containers, node_gone=gone)


def _has_departed(context: ProcessContext, enclave: Enclave) -> bool:
    """Return whether only the finalizer of metering is left of an Enclave."""
    pod = context.store.get(POD, enclave.metadata.namespace or "", enclave.metadata.name)
    return has_departed(enclave, has_pod=pod is not None)


def _is_cordoned(context: ProcessContext, enclave: Enclave) -> bool:
    """Return whether the Pod of an Enclave is on a node that is cordoned."""
    pod = context.store.get(POD, enclave.metadata.namespace or "", enclave.metadata.name)
    node = context.store.get(NODE, "", pod.decode()["spec"]["nodeName"]) if pod else None
    return node is not None and bool(node.decode()["spec"]["unschedulable"])


def with_newest_status(
    context: ProcessContext, enclave: Enclave, now: datetime
) -> tuple[Enclave, PodFacts | None]:
    """Return an Enclave with the status that follows from its Pod now, and the facts of the Pod."""
    known, pod = context.memory.attempt(enclave), pod_facts(context, enclave)
    status = evaluate_enclave(
        enclave,
        pod,
        now,
        context.decision,
        missing=known.missing_api,
        refused=known.refused,
    )
    return enclave.model_copy(update={"status": status}), pod


def _claims(
    context: ProcessContext, observed: Observed, hostnames: Iterable[str]
) -> dict[str, HostnameClaim]:
    """Gather who holds host names, and the claims that the Container has."""
    meta = observed.container.metadata
    entries = context.store.by_index(CLAIM, "holder", f"{meta.namespace}/{meta.name}")
    held = {entry.name: context.models.read(HostnameClaim, entry) for entry in entries}
    found = {
        hostname: claim_of(context, hostname, meta.namespace or "", observed.organization)
        for hostname in hostnames
    }
    return held | {hostname: claim for hostname, claim in found.items() if claim is not None}


def _routes(context: ProcessContext, namespace: str, name: str) -> dict[str, RouteFacts]:
    """Gather the TLSRoutes of a Container, by host name."""
    if context.gateway is None:
        return {}
    place = context.settings.operator_namespace
    return {
        entry.name: read_route(entry.decode(), namespace)
        for entry in context.store.by_index(
            context.gateway.route, "container", f"{namespace}/{name}"
        )
        if entry.namespace == place
    }


def _service(context: ProcessContext, namespace: str, name: str) -> ServiceFacts | None:
    """Gather which Enclave a Service selects, and its endpoints; None if it does not exist."""
    entry = context.store.get(SERVICE, namespace, name)
    if entry is None:
        return None
    slices = context.store.by_index(ENDPOINT_SLICE, "service", f"{namespace}/{name}")
    return ServiceFacts(
        selects=entry.decode()["spec"]["selector"].get(ENCLAVE_LABEL, ""),
        addresses=frozenset(
            address
            for each in slices
            for endpoint in each.decode()["endpoints"]
            for address in endpoint["addresses"]
        ),
        uid=entry.decode()["metadata"]["uid"],
        node_port=entry.decode()["spec"]["nodePort"],
    )
