"""The objects of one Container, normalized so that those of two Containers can be compared.

Names, times and what follows from them (uids, versions, hashes of a request that names the
Container) are replaced by placeholders; everything else is as the server has it.
"""

import copy
import json
import re
from dataclasses import dataclass
from typing import Any

from cloister_clients.kube.kinds import (
    CONFIG_MAP,
    NETWORK_POLICY,
    POD,
    POD_DISRUPTION_BUDGET,
    SECRET,
    SERVICE,
    TLS_ROUTES,
    KindRef,
    of,
)
from cloister_crds.kinds import Container, Deployment, Enclave, HostnameClaim
from tests.support.cluster.direct_client import DirectClient

__all__ = [
    "CHILDREN",
    "NamespaceSnapshot",
    "desired_part",
    "differences",
    "guards_of",
    "left_over",
    "plain",
]

CHILDREN: tuple[KindRef, ...] = (
    of(Enclave),
    POD,
    SECRET,
    CONFIG_MAP,
    SERVICE,
    of(Deployment),
)
"""Kinds that the operator creates for a Container, in its namespace; HostnameClaims have none."""
_FENCES = (NETWORK_POLICY, POD_DISRUPTION_BUDGET)
_CONTAINER = of(Container)
_CLAIM = of(HostnameClaim)
_ROUTE = TLS_ROUTES[0]

_VOLATILE = {
    *("uid", "resourceVersion", "managedFields", "creationTimestamp", "generation", "podUID"),
    *("podIP", "podIPs", "address", "clusterIP", "clusterIPs", "nodePort", "sshPort"),
    *(
        "hostIP",
        "hostIPs",
        "qosClass",
        "revision",
        "promote",
        "node",
        "nodeName",
        "observedGeneration",
    ),
}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+(Z|\+00:00)")
_DIGEST = re.compile(r"[0-9a-f]{40,96}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_BINARY = re.compile(r"[A-Za-z0-9+/=]{200,}")


@dataclass(frozen=True)
class NamespaceSnapshot:
    """The objects of a namespace at one time, read once for all its Containers."""

    namespace: str
    """The namespace."""
    objects: dict[KindRef, list[dict[str, Any]]]
    """Containers, their children, the claims and routes."""

    @classmethod
    def read(cls, direct: DirectClient, namespace: str, *, routes: str = "") -> "NamespaceSnapshot":
        """Read the current objects.

        Parameters
        ----------
        routes
            Namespace of TLSRoutes; empty = there is no Gateway.
        """
        found = {ref: direct.list_objects(ref, namespace) for ref in (_CONTAINER, *CHILDREN)}
        found[_CLAIM] = direct.list_objects(_CLAIM)
        if routes:
            found[_ROUTE] = direct.list_objects(_ROUTE, routes)
        return cls(namespace, found)

    def about(self, name: str) -> dict[str, Any]:
        """Return a Container and all its objects by kind, normalized.

        Parameters
        ----------
        name
            Its name; no other Container's may begin with it.
        """
        mine = {ref.plural: self._of(ref, name) for ref in self.objects}
        # Sorted in normalized form: the hash in a name does not tell which object it is.
        return {
            kind: sorted((plain(each, name) for each in bodies), key=str)
            for kind, bodies in mine.items()
        }

    def versions(self, name: str) -> dict[str, str]:
        """Return the version of each object of a Container by its uid; empty = it has none."""
        return {
            each["metadata"]["uid"]: each["metadata"]["resourceVersion"]
            for ref in self.objects
            for each in self._of(ref, name)
        }

    def orphans(self, name: str) -> list[str]:
        """Return what still waits for the garbage collector: objects of a deleted Enclave."""
        enclaves = {each["metadata"]["name"] for each in self.objects[of(Enclave)]}
        return [
            each["metadata"]["name"]
            for ref in CHILDREN
            for each in self._of(ref, name)
            for owner in each["metadata"].get("ownerReferences", ())
            if owner["kind"] == Enclave.INFO.kind and owner["name"] not in enclaves
        ]

    def unsettled(self, name: str) -> list[str]:
        """Return the Enclaves of which further writes are due, some time later.

        Those that were replaced drain, and a status that could not be written is written again
        after a backoff.
        """
        statuses = {
            each["metadata"]["name"]: each.get("status", {}) for each in self._of(of(Enclave), name)
        }
        return [n for n, status in statuses.items() if "demotedAt" in status or not status]

    def _of(self, ref: KindRef, name: str) -> list[dict[str, Any]]:
        """Return the objects of a kind that belong to a Container."""
        every = self.objects[ref]
        if ref == _CONTAINER:
            return [each for each in every if each["metadata"]["name"] == name]
        if ref == _CLAIM:
            return [each for each in every if _holder(each) == (self.namespace, name)]
        return [each for each in every if _is_about(each, name)]


def desired_part(state: dict[str, Any]) -> dict[str, Any]:
    """Return the part of an end state that follows from the spec alone, without its history."""
    state = copy.deepcopy(state)
    for container in state["containers"]:
        container["status"] = {key: each for key, each in container["status"].items() if each}
        container["status"].pop("history", None)
        for condition in container["status"].get("conditions", ()):
            condition.pop("lastTransitionTime", None)
    text = json.dumps(state, sort_keys=True)
    bare: dict[str, Any] = json.loads(re.sub(r"<enclave>-\d+", "<enclave>", text))
    for enclave in bare["enclaves"]:
        for field in ("attempt", "losses"):
            enclave["spec"].pop(field, None)
        # Its commit is in spec; whether the request pinned that very one makes no other Enclave.
        enclave["spec"]["request"].pop("commit", None)
    return bare


def differences(found: Any, wanted: Any, place: str = "") -> list[str]:
    """Return where two end states differ, with both values."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        keys = sorted(found.keys() | wanted.keys())
        pairs = [(f"{place}.{key}", found.get(key), wanted.get(key)) for key in keys]
    elif isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        pairs = [
            (f"{place}[{at}]", *both) for at, both in enumerate(zip(found, wanted, strict=True))
        ]
    else:
        return [] if found == wanted else [f"{place}: {found!r} is not {wanted!r}"]
    return [text for at, one, two in pairs for text in differences(one, two, at)]


def left_over(direct: DirectClient, namespace: str) -> list[str]:
    """Return the remaining objects that the operator created for Containers of a namespace."""
    names = [
        f"{ref.plural}/{each['metadata']['name']}"
        for ref in (of(Container), *CHILDREN)
        for each in direct.list_objects(ref, namespace)
        if ref not in {SECRET, CONFIG_MAP} or "ownerReferences" in each["metadata"]
    ]
    claims = [each for each in direct.list_objects(_CLAIM) if _holder(each)[0] == namespace]
    return names + [f"{_CLAIM.plural}/{each['metadata']['name']}" for each in claims]


def guards_of(direct: DirectClient, namespace: str) -> dict[str, Any]:
    """Return the objects that guard a namespace, normalized."""
    return {
        ref.plural: [plain(each, namespace) for each in direct.list_objects(ref, namespace)]
        for ref in _FENCES
    }


def _is_about(body: dict[str, Any], name: str) -> bool:
    """Return whether an object belongs to the Container, by its name."""
    return bool(re.match(rf"(acme-)?{re.escape(name)}(\b|--)", body["metadata"]["name"]))


def _holder(claim: dict[str, Any]) -> tuple[str, str]:
    holder = claim["spec"]["holder"]
    return holder["namespace"], holder["name"]


def plain(value: Any, name: str) -> Any:
    """Replace what differs between two objects of equal requests.

    Parameters
    ----------
    value
        JSON data.
    """
    if isinstance(value, dict):
        # A cleared message is empty; one that was never reported is absent.
        kept = {
            key: each
            for key, each in value.items()
            if key not in _VOLATILE and (key, each) != ("message", "")
        }
        return {_word(key, name): plain(each, name) for key, each in kept.items()}
    if isinstance(value, list):
        return [plain(each, name) for each in value]
    return _word(value, name) if isinstance(value, str) else value


def _word(text: str, name: str) -> str:
    """Replace the Container's name, times, uids and digests in a text."""
    text = re.sub(rf"{re.escape(name)}-[a-z2-7]{{10}}-(\d+)", r"<enclave>-\1", text)
    text = re.sub(rf"({re.escape(name)}[a-z-]*)--[a-z2-7]{{10}}", r"\1--<hash>", text)
    text = re.sub(r"promote to [a-z2-7]{10}", "promote to <revision>", text)
    text = re.sub(rf"\b{re.escape(name)}\b", "<name>", text)
    text = _BINARY.sub("<data>", text)
    return _DIGEST.sub("<digest>", _TIME.sub("<time>", text))
