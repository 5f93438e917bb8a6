"""The informers' kinds, and which part of each object is cached: projections, not whole bodies.

`process.kopf_handlers` watches each, `relist` compares each with the server, `store` holds them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cloister_clients.kube.kinds import ENDPOINT_SLICE, NAMESPACE, NODE, POD, SERVICE, KindRef, of
from cloister_crds.kinds import (
    Container,
    Deployment,
    Domain,
    Enclave,
    Host,
    HostnameClaim,
    Organization,
    RegistryCredential,
    Secret,
    SSHKey,
)
from cloister_crds.kinds.container import ContainerPhase
from cloister_crds.lifecycle.admission.limits import Place, place_of
from cloister_crds.names import (
    CONTAINER_ANNOTATION,
    CONTAINER_LABEL,
    ENCLAVE_LABEL,
    MANAGED_BY,
    MANAGED_BY_LABEL,
)

Body = Mapping[str, Any]
"""An object of the API as JSON data."""

CONTAINER = of(Container)
ENCLAVE = of(Enclave)
ORGANIZATION = of(Organization)
HOST = of(Host)
DEPLOYMENT = of(Deployment)
CLAIM = of(HostnameClaim)
SECRET_KIND = of(Secret)
DOMAIN = of(Domain)
REGISTRY_CREDENTIAL = of(RegistryCredential)
SSH_KEY = of(SSHKey)

_METADATA = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
    "ownerReferences",
    "finalizers",
)
_OUR_ANNOTATIONS = "cloister.dev/"


@dataclass(frozen=True, slots=True)
class WatchedKind:
    """A kind that is watched, and how its objects are cached."""

    ref: KindRef
    """The kind."""
    projection: Callable[[Body], dict[str, Any]]
    """Returns the cached part other than the metadata."""
    label_selector: str | None = None
    """Only objects with these labels; None means all."""
    indexes: tuple[tuple[str, Callable[[Body], str | tuple[str, ...]]], ...] = ()
    """Indexes of the store over this kind: name, and a function that returns an object's value, or
    several."""

    def index_values(self, body: Body) -> tuple[tuple[str, str], ...]:
        """Return names and values of the indexes that an object is listed in."""
        found = ((name, of(body)) for name, of in self.indexes)
        return tuple(
            (name, value)
            for name, values in found
            for value in ((values,) if isinstance(values, str) else values)
            if value
        )

    place: Callable[[Body], Place | None] | None = None
    """Returns an object's place in an order, to compare without decoding; None if it has none."""


def project(watched: WatchedKind, body: Body) -> dict[str, Any]:
    """Return the part of an object that is cached.

    That is its metadata without what nobody reads (managed fields, annotations of others), and the
    projection of its kind.
    """
    metadata = body.get("metadata") or {}
    kept = {name: metadata[name] for name in _METADATA if metadata.get(name)}
    annotations = {
        name: value
        for name, value in (metadata.get("annotations") or {}).items()
        if name.startswith(_OUR_ANNOTATIONS)
    }
    if annotations:
        kept["annotations"] = annotations
    return {"metadata": kept, **watched.projection(body)}


def _own_kind(body: Body) -> dict[str, Any]:
    """Keep spec and status: in our own kinds everything is read."""
    return {part: body[part] for part in ("spec", "status") if body.get(part) is not None}


def _metadata_alone(_body: Body) -> dict[str, Any]:
    """Keep only the metadata."""
    return {}


def _pod(body: Body) -> dict[str, Any]:
    """Keep what `cloister_operator.cache.pod_projection` reads."""
    spec, status = body.get("spec") or {}, body.get("status") or {}
    containers = [
        {
            name: each[name]
            for name in ("name", "restartPolicy", "readinessProbe")
            if each.get(name) is not None
        }
        for each in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    ]
    kept = (
        *("phase", "reason", "message", "podIP", "podIPs", "conditions", "containerStatuses"),
        "initContainerStatuses",
    )
    return {
        "spec": {"nodeName": spec.get("nodeName", ""), "containers": containers},
        "status": {name: status[name] for name in kept if status.get(name) is not None},
    }


def _service(body: Body) -> dict[str, Any]:
    """Keep the selector of a Service, and its node port; 0 if it has none."""
    spec = body.get("spec") or {}
    ports = [each["nodePort"] for each in spec.get("ports") or () if each.get("nodePort")]
    port = ports[0] if ports else 0
    return {"spec": {"selector": dict(spec.get("selector") or {}), "nodePort": port}}


def _endpoint_slice(body: Body) -> dict[str, Any]:
    """Keep the addresses."""
    endpoints = [{"addresses": list(each["addresses"])} for each in body.get("endpoints") or ()]
    return {"endpoints": endpoints}


def _route(body: Body) -> dict[str, Any]:
    """Keep the spec of a TLSRoute, and the status that its gateways report."""
    spec, status = body.get("spec") or {}, body.get("status") or {}
    return {"spec": spec, "status": {"parents": list(status.get("parents") or ())}}


def _node(body: Body) -> dict[str, Any]:
    """Keep whether the node can run Pods, its labels, its addresses and those of its Pods."""
    spec, status = body.get("spec") or {}, body.get("status") or {}
    ready = [
        {"type": each["type"], "status": each["status"]}
        for each in status.get("conditions") or ()
        if each["type"] == "Ready"
    ]
    addresses = [each["address"] for each in status.get("addresses") or ()]
    return {
        "spec": {
            "unschedulable": bool(spec.get("unschedulable")),
            "podCIDRs": list(spec.get("podCIDRs") or ()),
        },
        "status": {"conditions": ready, "addresses": addresses},
        "nodeLabels": dict((body.get("metadata") or {}).get("labels") or {}),
    }


def _namespace_of_organization(body: Body) -> str:
    """Return the namespace of an Organization."""
    return str(body["spec"]["namespace"])


def _namespace_of_deleted(body: Body) -> str:
    """Return the namespace of an Organization that is being deleted; empty if it is not."""
    return str(body["spec"]["namespace"]) if body["metadata"].get("deletionTimestamp") else ""


def _container_of_enclave(body: Body) -> str:
    """Return the Container of an Enclave as ``namespace/name``."""
    return f"{body['metadata']['namespace']}/{body['spec']['container']['name']}"


def _holder(body: Body) -> str:
    """Return the holder of a claim as ``namespace/name``."""
    holder = body["spec"]["holder"]
    return f"{holder['namespace']}/{holder['name']}"


def _node_of_pod(body: Body) -> str:
    """Return the node that a Pod is bound to; empty if it is not bound."""
    return str((body.get("spec") or {}).get("nodeName") or "")


def _namespace_if_deleting(body: Body) -> str:
    """Return the namespace of an object that is being deleted; empty if it is not."""
    metadata = body["metadata"]
    return str(metadata["namespace"]) if metadata.get("deletionTimestamp") else ""


def _ownerless(body: Body) -> str:
    """Return "true" for an object without an owner, which the operator always writes; else ""."""
    return "" if body["metadata"].get("ownerReferences") else "true"


def _namespace_of_ownerless(body: Body) -> str:
    """Return the namespace of an object without an owner; empty if it has one."""
    return str(body["metadata"]["namespace"]) if _ownerless(body) else ""


def _host_of_container(body: Body) -> str:
    """Return the Host that a Container names or runs on; empty if there is none yet."""
    running = (body.get("status") or {}).get("host") or {}
    return str(body["spec"].get("host") or running.get("name") or "")


def _domains(body: Body) -> tuple[str, ...]:
    """Return the values of the index ``domain``: what a Container requests, keeps and serves."""
    metadata, status = body["metadata"], body.get("status") or {}
    kept = (status.get("keptRequest") or {}).get("request") or {}
    named = {body["spec"].get("customDomain"), kept.get("customDomain"), status.get("domain")}
    return tuple(domain_index(metadata["namespace"], each) for each in named if each)


def domain_index(namespace: str, domain: str) -> str:
    """Return the value of the index ``domain``."""
    return f"{namespace}/{domain}"


def _replaces(body: Body) -> str:
    """Return the namespace of a Container that replaces another one; empty if it does not."""
    return str(body["metadata"]["namespace"]) if body["spec"].get("replaces") else ""


def _namespace_of_unsettled(body: Body) -> str:
    """Return the namespace of a Container that waits for something or failed; empty if it does not.

    One that is being deleted waits for nothing that others give up.
    """
    metadata = body["metadata"]
    settled = (body.get("status") or {}).get("phase") in _SETTLED
    return "" if settled or metadata.get("deletionTimestamp") else str(metadata["namespace"])


def _unsettled(body: Body) -> str:
    """Return whether a Container waits for something or failed; empty if it does not."""
    return "true" if _namespace_of_unsettled(body) else ""


def _state(body: Body) -> str:
    """Return the state of a Container as ``status word/stalled or empty/reason``.

    A status that nobody has written yet reads as ``deploying``, as in the Admin API.
    """
    status = body.get("status") or {}
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    stalled = (conditions.get("Stalled") or {}).get("status") == "True"
    reason = (conditions.get("Stalled" if stalled else "Ready") or {}).get("reason", "")
    phase = status.get("phase") or ContainerPhase.DEPLOYING
    return f"{phase}/{'stalled' if stalled else ''}/{reason}"


def _place(body: Body) -> Place | None:
    """Return the place of a Container among those that count; None if it is being deleted."""
    metadata = body["metadata"]
    if metadata.get("deletionTimestamp"):
        return None
    return place_of(_created(body), metadata["uid"])


def _created(body: Body) -> datetime | None:
    """Return when an object was created; None if not known."""
    created = body["metadata"].get("creationTimestamp")
    return datetime.fromisoformat(created) if created else None


def _place_of_enclave(body: Body) -> Place:
    """Return the place of the Container of an Enclave, as far as the Enclave tells."""
    return place_of(_created(body), body["spec"]["container"]["uid"])


def _place_of_pod(body: Body) -> Place:
    """Return the place of the Container of a Pod whose Enclave is gone: its uid is not known."""
    return place_of(_created(body), f"Pods of {_container_of_pod(body)}")


def _container_of_pod(body: Body) -> str:
    """Return the Container of a Pod as ``namespace/label``."""
    metadata = body["metadata"]
    return f"{metadata['namespace']}/{(metadata.get('labels') or {}).get(CONTAINER_LABEL, '')}"


def _repo(body: Body) -> str:
    """Return the value of the index ``repo`` of a Container or Deployment."""
    return repo_index(body["metadata"]["namespace"], body["spec"]["repo"])


def repo_index(namespace: str, repo: str) -> str:
    """Return the value of the index ``repo``: the same for all spellings of a repository.

    Where the source distinguishes case, repositories that are not meant are among those found.
    """
    return f"{namespace}/{repo.lower()}"


def _service_of_slice(body: Body) -> str:
    """Return the Service of an EndpointSlice as ``namespace/name``."""
    metadata = body["metadata"]
    name = (metadata.get("labels") or {}).get("kubernetes.io/service-name", "")
    return f"{metadata['namespace']}/{name}"


def _container_of_route(body: Body) -> str:
    """Return the Container of a TLSRoute as ``namespace/name``; empty if it does not name one."""
    return str((body["metadata"].get("annotations") or {}).get(CONTAINER_ANNOTATION, ""))


STATE_INDEX = "state"
"""Index of Containers by their state, which metrics count."""
_OURS = f"{MANAGED_BY_LABEL}={MANAGED_BY}"
_SETTLED = ("ready", "stopped")
"""Phases in which a Container waits for nothing."""

_DELETING = ("deleting", _namespace_if_deleting)
_OWNERLESS = ("ownerless", _ownerless)

WATCHED_KINDS: tuple[WatchedKind, ...] = (
    WatchedKind(
        ORGANIZATION,
        _own_kind,
        indexes=(("namespace", _namespace_of_organization), ("deleting", _namespace_of_deleted)),
    ),
    WatchedKind(HOST, _own_kind),
    WatchedKind(
        CONTAINER,
        _own_kind,
        indexes=(
            ("host", _host_of_container),
            ("repo", _repo),
            ("domain", _domains),
            ("replaces", _replaces),
            ("unsettled", _unsettled),
            ("unsettled in", _namespace_of_unsettled),
            (STATE_INDEX, _state),
            _DELETING,
        ),
        place=_place,
    ),
    WatchedKind(
        ENCLAVE,
        _own_kind,
        indexes=(("container", _container_of_enclave), _DELETING),
        place=_place_of_enclave,
    ),
    WatchedKind(DEPLOYMENT, _own_kind, indexes=(("repo", _repo),)),
    WatchedKind(SECRET_KIND, _own_kind),
    WatchedKind(DOMAIN, _own_kind),
    WatchedKind(REGISTRY_CREDENTIAL, _own_kind),
    WatchedKind(SSH_KEY, _own_kind),
    WatchedKind(CLAIM, _own_kind, indexes=(("holder", _holder),)),
    WatchedKind(
        POD,
        _pod,
        f"{_OURS},{ENCLAVE_LABEL}",
        (("node", _node_of_pod), ("container", _container_of_pod), _DELETING, _OWNERLESS),
        place=_place_of_pod,
    ),
    WatchedKind(SERVICE, _service, _OURS, (_OWNERLESS, ("ownerless in", _namespace_of_ownerless))),
    WatchedKind(ENDPOINT_SLICE, _endpoint_slice, _OURS, (("service", _service_of_slice),)),
    WatchedKind(NAMESPACE, _metadata_alone),
    WatchedKind(NODE, _node),
)
"""Every kind that is watched in every cluster. Namespaces have no label selector, so that one that
exists without our label is seen before anything is written into it."""


def watched_kinds(route: KindRef | None) -> tuple[WatchedKind, ...]:
    """Return every kind that is watched in a cluster.

    Parameters
    ----------
    route
        TLSRoute in the version that the cluster serves; None means routes are not created.
    """
    if route is None:
        return WATCHED_KINDS
    return (
        *WATCHED_KINDS,
        WatchedKind(route, _route, _OURS, (("container", _container_of_route),)),
    )
