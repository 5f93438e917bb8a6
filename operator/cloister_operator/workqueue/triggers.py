"""Which keys a change of an object concerns: the edges between events and passes.

Pure but for reading the store; called by `handlers` for every change of the store.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta

from cloister_clients.kube.kinds import (
    ENDPOINT_SLICE,
    NAMESPACE,
    NODE,
    POD,
    SERVICE,
    TLS_ROUTES,
    KindRef,
)
from cloister_crds.kinds.meta import REQUESTED_AT_ANNOTATION
from cloister_crds.lifecycle.admission.key_check import API_REACHABLE
from cloister_crds.names import CONTAINER_ANNOTATION
from cloister_operator.cache.projections import (
    CLAIM,
    CONTAINER,
    DEPLOYMENT,
    DOMAIN,
    ENCLAVE,
    HOST,
    ORGANIZATION,
    REGISTRY_CREDENTIAL,
    SECRET_KIND,
    SSH_KEY,
)
from cloister_operator.cache.store import CachedObject, Store, StoreChange
from cloister_operator.workqueue.keys import Key

__all__ = ["COUNTS_DELAY", "Trigger", "is_low_priority", "triggers_of"]

COUNTS_DELAY = timedelta(seconds=2)
"""Pause before counts over many objects are written anew: one write for a burst of changes."""

Trigger = tuple[Key, float]
"""A key and the seconds after which it is due."""

_SLOWLY = COUNTS_DELAY.total_seconds()
_SERVICE_NAME = "kubernetes.io/service-name"
_SETTLED = ("ready", "stopped")
_OF_ONE = {CLAIM, ENCLAVE, ENDPOINT_SLICE, NODE, POD, SERVICE, *TLS_ROUTES}
"""Kinds whose changes concern few Containers, in the midst of something."""
_USED = (SECRET_KIND, SSH_KEY, DOMAIN)
"""Kinds whose status names the Containers that use an object."""


def triggers_of(change: StoreChange, store: Store) -> Iterator[Trigger]:
    """Go through the keys that a change concerns.

    Parameters
    ----------
    change
        What happened.
    store
        What is known after it.
    """
    edges = _EDGES.get(change.ref)
    if edges is not None:
        yield from edges(change, store)


def is_low_priority(change: StoreChange, key: Key) -> bool:
    """Tell whether a key that a change concerns may stand in the queue's second line.

    That is a Container that is new or that something tells of which many share, such as its Host:
    what somebody has begun to wait for is told by the Container or by what is its own.

    Parameters
    ----------
    change
        What happened.
    key
        A key that it concerns.
    """
    if key.kind != "Container" or change.ref in _OF_ONE:
        return False
    own = Key(change.ref.kind, change.namespace, change.name) == key
    return not own or change.before is None


def _container(change: StoreChange, store: Store) -> Iterator[Trigger]:
    """Wake the Container itself, those that count it, and those that wait for its place."""
    yield Key("Container", change.namespace, change.name), 0.0
    if not (_same_spec(change) and _same(change, "domain")):
        for ref in _USED:
            for each in store.entries(ref, change.namespace):
                yield Key(ref.kind, change.namespace, each.name), _SLOWLY
    if _same(change, "phase"):
        return
    yield from _replaced(change)
    yield from _organization_of(change.namespace, store, after=_SLOWLY)
    entry = change.after or change.before
    if entry is not None:
        repo = entry.decode()["spec"]["repo"]
        for each in store.by_index(DEPLOYMENT, "repo", f"{change.namespace}/{repo}"):
            yield Key("Deployment", each.namespace, each.name), _SLOWLY
    if change.after is None:
        yield from _unsettled(change.namespace, store)
        yield from _orphans_of(f"{change.namespace}/{change.name}", store)


def _orphans_of(container: str, store: Store) -> Iterator[Trigger]:
    """Wake what a Container that is gone leaves behind in no namespace or another one."""
    for claim in store.by_index(CLAIM, "holder", container):
        yield Key("HostnameClaim", "", claim.name), 0.0
    for ref in TLS_ROUTES:
        for route in store.by_index(ref, "container", container):
            yield Key("TLSRoute", route.namespace, route.name), 0.0


def _replaced(change: StoreChange) -> Iterator[Trigger]:
    """Wake the Container that a changed one takes over from."""
    entry = change.after or change.before
    replaces = entry.decode()["spec"].get("replaces") if entry is not None else None
    if replaces:
        yield Key("Container", change.namespace, replaces), 0.0


def _enclave(change: StoreChange, _store: Store) -> Iterator[Trigger]:
    """Wake the Enclave itself and the Container that it belongs to."""
    yield Key("Enclave", change.namespace, change.name), 0.0
    entry = change.after or change.before
    if entry is not None:
        yield Key("Container", change.namespace, entry.decode()["spec"]["container"]["name"]), 0.0


def _pod(change: StoreChange, store: Store) -> Iterator[Trigger]:
    """Wake the Enclave of the same name, and its Container."""
    yield Key("Enclave", change.namespace, change.name), 0.0
    enclave = store.get(ENCLAVE, change.namespace, change.name)
    if enclave is not None:
        container = enclave.decode()["spec"]["container"]["name"]
        yield Key("Container", change.namespace, container), 0.0


def _service(change: StoreChange, _store: Store) -> Iterator[Trigger]:
    """Wake the Container that owns the Service."""
    yield from _owner(change.after or change.before)


def _endpoint_slice(change: StoreChange, store: Store) -> Iterator[Trigger]:
    """Wake the Container that owns the Service of the slice."""
    entry = change.after or change.before
    if entry is None:
        return
    service = entry.decode()["metadata"].get("labels", {}).get(_SERVICE_NAME, "")
    yield from _owner(store.get(SERVICE, change.namespace, service))


def _organization(change: StoreChange, store: Store) -> Iterator[Trigger]:
    """Wake the Organization, and the Containers that are not where they should be.

    Of its status alone only the counts are the operator's, and they come slowly.
    """
    same = _same_spec(change)
    yield Key("Organization", "", change.name), _SLOWLY if same else 0.0
    entry = change.after or change.before
    if entry is not None and not same:
        yield from _unsettled(entry.decode()["spec"]["namespace"], store)


def _namespace(change: StoreChange, store: Store) -> Iterator[Trigger]:
    """Wake the Organization of the namespace."""
    yield from _organization_of(change.name, store, after=0.0)


def _host(change: StoreChange, store: Store) -> Iterator[Trigger]:
    """Wake the Host, the Containers that wait, and those that it tells of keys."""
    yield Key("Host", "", change.name), 0.0
    yield from _unsettled(None, store)
    if _reaches_api(change.before) == _reaches_api(change.after):
        return
    for enclave in store.entries(ENCLAVE):
        spec = enclave.decode()["spec"]
        if spec["host"] == change.name and spec["summary"].get("checksKeys"):
            yield Key("Container", enclave.namespace, spec["container"]["name"]), _SLOWLY


def _reaches_api(entry: CachedObject | None) -> str:
    """Answer what a Host says of the API; empty = nothing yet."""
    status = entry.decode().get("status", {}) if entry is not None else {}
    found = (each for each in status.get("conditions", ()) if each["type"] == API_REACHABLE)
    return next((each["reason"] for each in found), "")


def _node(change: StoreChange, store: Store) -> Iterator[Trigger]:
    """Wake all Hosts, slowly, and what runs on a node that changed its state."""
    if change.before and change.after and _facts(change.before) == _facts(change.after):
        return
    for host in store.entries(HOST):
        yield Key("Host", "", host.name), _SLOWLY
    for pod in store.by_index(POD, "node", change.name):
        yield Key("Enclave", pod.namespace, pod.name), 0.0
        enclave = store.get(ENCLAVE, pod.namespace, pod.name)
        if enclave is not None:
            container = enclave.decode()["spec"]["container"]["name"]
            yield Key("Container", pod.namespace, container), 0.0


def _deployment(change: StoreChange, store: Store) -> Iterator[Trigger]:
    """Wake the Deployment, and the Containers of its repo when it was changed by a person."""
    same = _same_spec(change) and _same_request(change)
    yield Key("Deployment", change.namespace, change.name), _SLOWLY if same else 0.0
    entry = change.after or change.before
    if entry is not None and not same:
        repo = entry.decode()["spec"]["repo"]
        for each in store.by_index(CONTAINER, "repo", f"{change.namespace}/{repo}"):
            yield Key("Container", each.namespace, each.name), 0.0


def _used(change: StoreChange, store: Store) -> Iterator[Trigger]:
    """Wake the object, and the Containers that may wait for it.

    Of its status alone only who uses it can be behind, and that comes slowly.
    """
    same = _same_spec(change) and _same_request(change)
    yield Key(change.ref.kind, change.namespace, change.name), _SLOWLY if same else 0.0
    yield from _unsettled(change.namespace, store)


def _domain(change: StoreChange, store: Store) -> Iterator[Trigger]:
    """Wake the Domain, and every Container that uses it or may wait for it."""
    yield from _used(change, store)
    entry = change.after or change.before
    if entry is not None:
        host = entry.decode()["spec"]["domain"]
        for container in store.entries(CONTAINER, change.namespace):
            body = container.decode()
            if host in (body["spec"].get("customDomain"), body.get("status", {}).get("domain")):
                yield Key("Container", container.namespace, container.name), 0.0


def _claim(change: StoreChange, store: Store) -> Iterator[Trigger]:
    """Wake the claim, its holder, and after its end those that may wait for the name."""
    yield Key("HostnameClaim", "", change.name), 0.0
    entry = change.after or change.before
    if entry is not None:
        holder = entry.decode()["spec"]["holder"]
        yield Key("Container", holder["namespace"], holder["name"]), 0.0
        if change.after is None:
            yield from _unsettled(holder["namespace"], store)


def _route(change: StoreChange, _store: Store) -> Iterator[Trigger]:
    """Wake the route, and the Containers that it belongs or belonged to."""
    yield Key("TLSRoute", change.namespace, change.name), 0.0
    for entry in (change.before, change.after):
        if entry is not None:
            annotations = entry.decode()["metadata"].get("annotations", {})
            namespace, _, name = annotations.get(CONTAINER_ANNOTATION, "").partition("/")
            if name:
                yield Key("Container", namespace, name), 0.0


def _owner(entry: CachedObject | None) -> Iterator[Trigger]:
    """Wake the Container that is the controller of an object."""
    if entry is None:
        return
    for reference in entry.decode()["metadata"].get("ownerReferences", ()):
        if reference.get("controller") and reference["kind"] == "Container":
            yield Key("Container", entry.namespace, reference["name"]), 0.0


def _organization_of(namespace: str, store: Store, *, after: float) -> Iterator[Trigger]:
    """Wake the Organizations that name a namespace."""
    for organization in store.by_index(ORGANIZATION, "namespace", namespace):
        yield Key("Organization", "", organization.name), after


def _unsettled(namespace: str | None, store: Store) -> Iterator[Trigger]:
    """Wake the Containers, in one namespace or all, that wait for something or failed."""
    for container in store.entries(CONTAINER, namespace):
        if container.decode().get("status", {}).get("phase") not in _SETTLED:
            yield Key("Container", container.namespace, container.name), 0.0


def _same(change: StoreChange, field: str) -> bool:
    """Tell whether a status field did not change."""
    if change.before is None or change.after is None:
        return False
    before, after = change.before.decode(), change.after.decode()
    return bool(before.get("status", {}).get(field) == after.get("status", {}).get(field))


def _same_request(change: StoreChange) -> bool:
    """Tell whether nobody asked anew to look now."""
    if change.before is None or change.after is None:
        return False
    before, after = (
        each.decode()["metadata"].get("annotations", {}).get(REQUESTED_AT_ANNOTATION)
        for each in (change.before, change.after)
    )
    return bool(before == after)


def _same_spec(change: StoreChange) -> bool:
    """Tell whether the spec did not change."""
    if change.before is None or change.after is None:
        return False
    return bool(change.before.decode().get("spec") == change.after.decode().get("spec"))


def _facts(entry: CachedObject) -> object:
    """Answer what of a node matters."""
    body = entry.decode()
    return body["spec"], body["status"], body["nodeLabels"]


_EDGES: dict[KindRef, Callable[[StoreChange, Store], Iterator[Trigger]]] = {
    CLAIM: _claim,
    CONTAINER: _container,
    DEPLOYMENT: _deployment,
    DOMAIN: _domain,
    ENCLAVE: _enclave,
    ENDPOINT_SLICE: _endpoint_slice,
    HOST: _host,
    NAMESPACE: _namespace,
    NODE: _node,
    ORGANIZATION: _organization,
    POD: _pod,
    REGISTRY_CREDENTIAL: _used,
    SECRET_KIND: _used,
    SERVICE: _service,
    SSH_KEY: _used,
    **dict.fromkeys(TLS_ROUTES, _route),
}
