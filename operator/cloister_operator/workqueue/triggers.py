"""Keys of the work queue, and which of them a change of an object enqueues."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cached_property
from typing import Any, NamedTuple

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
from cloister_crds.lifecycle.admission.keys import API_REACHABLE
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
    domain_index,
    repo_index,
)
from cloister_operator.cache.store import Store, StoreChange


class Key(NamedTuple):
    """One object of one kind."""

    kind: str
    """Kind, such as ``Container``."""
    namespace: str
    """Its namespace; empty for kinds without."""
    name: str
    """Its name."""

    @property
    def text(self) -> str:
        """The key as it is logged."""
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {place}{self.name}"


def group_of(key: Key) -> str:
    """Return what takes turns in the queue: a namespace, or a kind without namespaces."""
    return key.namespace or key.kind


COUNTS_DELAY = timedelta(seconds=2)
"""Debounce of counts over many objects: one write for a burst of changes."""

Trigger = tuple[Key, float]
"""A key and the seconds after which it is due."""

_DELAYED = COUNTS_DELAY.total_seconds()
_SERVICE_NAME = "kubernetes.io/service-name"
_OF_ONE_CONTAINER = {CLAIM, ENCLAVE, ENDPOINT_SLICE, NODE, POD, SERVICE, *TLS_ROUTES}
"""Kinds whose changes concern few Containers, in the middle of a rollout."""
_USED_BY_CONTAINERS = (SECRET_KIND, SSH_KEY, DOMAIN)
"""Kinds whose status names the Containers that use an object."""

Body = dict[str, Any]


class _Versions:
    """Both versions of a changed object, each decoded once and only when it is needed."""

    def __init__(self, change: StoreChange) -> None:
        self.change = change
        """The change."""

    @property
    def namespace(self) -> str:
        """Namespace of the object."""
        return self.change.namespace

    @property
    def name(self) -> str:
        """Name of the object."""
        return self.change.name

    @property
    def deleted(self) -> bool:
        """Whether the object is gone."""
        return self.change.after is None

    @property
    def replaced(self) -> bool:
        """Whether the object that was known is gone, also where another one has its name."""
        before, after = self.change.before, self.change.after
        return before is not None and (after is None or after.uid != before.uid)

    @cached_property
    def before(self) -> Body | None:
        """The object before the change; None if it was not known."""
        return None if self.change.before is None else self.change.before.decode()

    @cached_property
    def after(self) -> Body | None:
        """The object after the change; None if it is gone."""
        return None if self.change.after is None else self.change.after.decode()

    @property
    def newest(self) -> Body:
        """The object as it is, or was last."""
        found = self.before if self.after is None else self.after
        assert found is not None
        return found

    def same(self, part: Callable[[Body], object]) -> bool:
        """Return whether a part is equal in both versions; False when there is only one."""
        if self.before is None or self.after is None:
            return False
        return part(self.before) == part(self.after)

    @property
    def same_spec(self) -> bool:
        """Whether the spec is unchanged."""
        return self.same(lambda body: body.get("spec"))

    @property
    def same_request(self) -> bool:
        """Whether nobody has requested another check since."""
        return self.same(
            lambda body: body["metadata"].get("annotations", {}).get(REQUESTED_AT_ANNOTATION)
        )

    def same_status(self, field: str) -> bool:
        """Return whether a field of the status is unchanged."""
        return self.same(lambda body: body.get("status", {}).get(field))


def triggers_of(change: StoreChange, store: Store) -> Iterator[Trigger]:
    """Return the keys that a change enqueues; the store is as it is after the change."""
    mapping = _MAPPINGS.get(change.ref)
    if mapping is not None:
        yield from mapping(_Versions(change), store)


def is_low_priority(change: StoreChange, key: Key) -> bool:
    """Return whether a key that a change enqueues may wait for keys of normal priority.

    That is a Container that is new, or that is enqueued because of an object which many share,
    such as its Host. What somebody waits for is enqueued by the Container or its own children.
    """
    if key.kind != "Container" or change.ref in _OF_ONE_CONTAINER:
        return False
    own = Key(change.ref.kind, change.namespace, change.name) == key
    return not own or change.before is None


def _container(versions: _Versions, store: Store) -> Iterator[Trigger]:
    """Enqueue the Container itself, what counts it, and those that wait for its capacity."""
    namespace, name = versions.namespace, versions.name
    yield Key("Container", namespace, name), 0.0
    if versions.replaced:
        yield from _left_behind(namespace, name, store)
    used = ("domain", "secrets", "servedBindings")
    if not (versions.same_spec and all(versions.same_status(each) for each in used)):
        for ref in _USED_BY_CONTAINERS:
            for each in store.entries(ref, namespace):
                yield Key(ref.kind, namespace, each.name), _DELAYED
    if versions.same_status("phase"):
        return
    spec = versions.newest["spec"]
    if spec.get("replaces"):
        yield Key("Container", namespace, spec["replaces"]), 0.0
    yield from _organization_of(namespace, store, after=_DELAYED)
    yield from _ending(namespace, store)
    for each in store.by_index(DEPLOYMENT, "repo", repo_index(namespace, spec["repo"])):
        yield Key("Deployment", each.namespace, each.name), _DELAYED
    if versions.deleted:
        yield from _unsettled(namespace, store)
        yield from _orphans_of(f"{namespace}/{name}", store)


def _left_behind(namespace: str, container: str, store: Store) -> Iterator[Trigger]:
    """Enqueue the Enclaves and ownerless Services that a Container may have left."""
    for enclave in store.by_index(ENCLAVE, "container", f"{namespace}/{container}"):
        # Delayed: the garbage collector has usually deleted them by then.
        yield Key("Enclave", namespace, enclave.name), _DELAYED
    # An orphaning deletion takes their owner away while the Container is still there.
    for service in store.by_index(SERVICE, "ownerless in", namespace):
        yield Key("Service", namespace, service.name), 0.0


def _orphans_of(container: str, store: Store) -> Iterator[Trigger]:
    """Enqueue what owner references do not reach: cluster-wide, or in another namespace."""
    for claim in store.by_index(CLAIM, "holder", container):
        yield Key("HostnameClaim", "", claim.name), 0.0
    for ref in TLS_ROUTES:
        for route in store.by_index(ref, "container", container):
            yield Key("TLSRoute", route.namespace, route.name), 0.0


def _enclave(versions: _Versions, store: Store) -> Iterator[Trigger]:
    """Enqueue the Enclave itself and its Container."""
    yield Key("Enclave", versions.namespace, versions.name), 0.0
    yield from _ending(versions.namespace, store)
    container = versions.newest["spec"]["container"]["name"]
    yield Key("Container", versions.namespace, container), 0.0


def _pod(versions: _Versions, store: Store) -> Iterator[Trigger]:
    """Enqueue the Enclave of the same name, its Container, and who waits for the place of that."""
    yield from _enclave_and_container(versions.namespace, versions.name, store)
    if not versions.deleted:
        return
    yield from _ending(versions.namespace, store)
    enclave = store.get(ENCLAVE, versions.namespace, versions.name)
    name = enclave.decode()["spec"]["container"]["name"] if enclave else ""
    container = store.get(CONTAINER, versions.namespace, name)
    # The name may be another Container's by now.
    counted = container.place if container else None
    if counted is None or (enclave and enclave.place and enclave.place[1] != counted[1]):
        yield from _unsettled(versions.namespace, store)
        yield from _organization_of(versions.namespace, store, after=_DELAYED)


def _enclave_and_container(namespace: str, name: str, store: Store) -> Iterator[Trigger]:
    """Enqueue an Enclave, and its Container where the Enclave is known."""
    yield Key("Enclave", namespace, name), 0.0
    enclave = store.get(ENCLAVE, namespace, name)
    if enclave is not None:
        container = enclave.decode()["spec"]["container"]["name"]
        yield Key("Container", namespace, container), 0.0


def _service(versions: _Versions, _store: Store) -> Iterator[Trigger]:
    """Enqueue the Container that owns the Service, or the Service itself when none does."""
    if not versions.deleted and not versions.newest["metadata"].get("ownerReferences"):
        yield Key("Service", versions.namespace, versions.name), 0.0
    yield from _owner(versions.namespace, versions.newest)


def _endpoint_slice(versions: _Versions, store: Store) -> Iterator[Trigger]:
    """Enqueue the Container that owns the Service of the slice."""
    name = versions.newest["metadata"].get("labels", {}).get(_SERVICE_NAME, "")
    service = store.get(SERVICE, versions.namespace, name)
    if service is not None:
        yield from _owner(service.namespace, service.decode())


def _organization(versions: _Versions, store: Store) -> Iterator[Trigger]:
    """Enqueue the Organization, and its unsettled Containers when its spec changed.

    Of its status only the counts are the operator's, and those are debounced.
    """
    same = versions.same_spec
    yield Key("Organization", "", versions.name), _DELAYED if same else 0.0
    if not same:
        yield from _unsettled(versions.newest["spec"]["namespace"], store)


def _namespace(versions: _Versions, store: Store) -> Iterator[Trigger]:
    """Enqueue the Organization of the namespace."""
    yield from _organization_of(versions.name, store, after=0.0)


def _host(versions: _Versions, store: Store) -> Iterator[Trigger]:
    """Enqueue the Host, unsettled Containers, and those with keys when the API's state changed."""
    yield Key("Host", "", versions.name), 0.0
    if _is_default(versions.before) != _is_default(versions.after):
        for host in store.entries(HOST):
            if _is_default(host.decode()):
                yield Key("Host", "", host.name), 0.0
    yield from _unsettled(None, store)
    if _api_state(versions.before) == _api_state(versions.after):
        return
    for enclave in store.entries(ENCLAVE):
        spec = enclave.decode()["spec"]
        if spec["host"] == versions.name and spec["summary"].get("checksKeys"):
            yield Key("Container", enclave.namespace, spec["container"]["name"]), _DELAYED


def _is_default(host: Body | None) -> bool:
    """Return whether a Host says that it is the default; False if there is none."""
    return bool((host or {}).get("spec", {}).get("default"))


def _api_state(host: Body | None) -> str:
    """Return the reason of a Host's condition about the API; empty if it has none yet."""
    conditions = (host or {}).get("status", {}).get("conditions", ())
    return next((each["reason"] for each in conditions if each["type"] == API_REACHABLE), "")


def _node(versions: _Versions, store: Store) -> Iterator[Trigger]:
    """Enqueue all Hosts, debounced, and what runs on a node whose state changed."""
    # Nodes are written every few seconds (heartbeats); most of that is not in the projection.
    if versions.same(lambda node: (node["spec"], node["status"], node["nodeLabels"])):
        return
    for host in store.entries(HOST):
        yield Key("Host", "", host.name), _DELAYED
    for pod in store.by_index(POD, "node", versions.name):
        yield from _enclave_and_container(pod.namespace, pod.name, store)


def _deployment(versions: _Versions, store: Store) -> Iterator[Trigger]:
    """Enqueue the Deployment, and the Containers of its repo when a person changed it."""
    same = versions.same_spec and versions.same_request
    yield Key("Deployment", versions.namespace, versions.name), _DELAYED if same else 0.0
    if not same:
        repo = versions.newest["spec"]["repo"]
        for each in store.by_index(CONTAINER, "repo", repo_index(versions.namespace, repo)):
            yield Key("Container", each.namespace, each.name), 0.0


def _used(versions: _Versions, store: Store) -> Iterator[Trigger]:
    """Enqueue the object, and the Containers that may wait for it.

    Of its status only the names of its users can be out of date, and those are debounced.
    """
    same = versions.same_spec and versions.same_request
    kind = versions.change.ref.kind
    yield Key(kind, versions.namespace, versions.name), _DELAYED if same else 0.0
    yield from _unsettled(versions.namespace, store)
    if versions.before is None or versions.after is None:
        yield from _organization_of(versions.namespace, store, after=_DELAYED)


def _domain(versions: _Versions, store: Store) -> Iterator[Trigger]:
    """Enqueue the Domain, and every Container that uses it or may wait for it."""
    yield from _used(versions, store)
    host = versions.newest["spec"]["domain"]
    for container in store.by_index(CONTAINER, "domain", domain_index(versions.namespace, host)):
        yield Key("Container", container.namespace, container.name), 0.0


def _claim(versions: _Versions, store: Store) -> Iterator[Trigger]:
    """Enqueue the claim and its holder, and after its deletion those that may wait for the name."""
    yield Key("HostnameClaim", "", versions.name), 0.0
    holder = versions.newest["spec"]["holder"]
    yield Key("Container", holder["namespace"], holder["name"]), 0.0
    if versions.deleted:
        yield from _ending(holder["namespace"], store)
        yield from _unsettled(holder["namespace"], store)


def _route(versions: _Versions, store: Store) -> Iterator[Trigger]:
    """Enqueue the route, and the Containers that it belongs or belonged to."""
    yield Key("TLSRoute", versions.namespace, versions.name), 0.0
    for body in (versions.before, versions.after):
        if body is not None:
            annotations = body["metadata"].get("annotations", {})
            namespace, _, name = annotations.get(CONTAINER_ANNOTATION, "").partition("/")
            if name:
                yield Key("Container", namespace, name), 0.0
                yield from _ending(namespace, store)


def _owner(namespace: str, body: Body) -> Iterator[Trigger]:
    """Enqueue the Container that is the controller of an object."""
    for reference in body["metadata"].get("ownerReferences", ()):
        if reference.get("controller") and reference["kind"] == "Container":
            yield Key("Container", namespace, reference["name"]), 0.0


def _organization_of(namespace: str, store: Store, *, after: float) -> Iterator[Trigger]:
    """Enqueue the Organizations that name a namespace."""
    for organization in store.by_index(ORGANIZATION, "namespace", namespace):
        yield Key("Organization", "", organization.name), after


def _ending(namespace: str, store: Store) -> Iterator[Trigger]:
    """Enqueue the Organization of a namespace when it waits to be deleted."""
    for organization in store.by_index(ORGANIZATION, "deleting", namespace):
        yield Key("Organization", "", organization.name), 0.0


def _unsettled(namespace: str | None, store: Store) -> Iterator[Trigger]:
    """Enqueue the Containers, in one namespace or all, that wait for something or failed."""
    if namespace is None:
        found = store.by_index(CONTAINER, "unsettled", "true")
    else:
        found = store.by_index(CONTAINER, "unsettled in", namespace)
    for container in found:
        yield Key("Container", container.namespace, container.name), 0.0


_MAPPINGS: dict[KindRef, Callable[[_Versions, Store], Iterator[Trigger]]] = {
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
