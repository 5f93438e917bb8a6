"""Paths of kinds in the API, parts of requests, events of watches, installed policies."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any
from urllib.parse import quote

import msgspec

from cloister_clients.kube.errors import Unavailable, error_from_status
from cloister_crds.kinds.meta import GROUP, VERSION, Resource

__all__ = [
    "CONFIG_MAP",
    "CUSTOM_RESOURCE_DEFINITION",
    "ENDPOINT_SLICE",
    "EVENT",
    "LEASE",
    "NAMESPACE",
    "NETWORK_POLICY",
    "NODE",
    "POD",
    "POD_DISRUPTION_BUDGET",
    "POD_METRICS",
    "POLICIES",
    "POLICY",
    "POLICY_BINDING",
    "PRIORITY_CLASS",
    "REFERENCE_GRANTS",
    "RESOURCE_CLAIM",
    "RESOURCE_QUOTA",
    "ROLE_BINDING",
    "SECRET",
    "SERVICE",
    "TLS_ROUTES",
    "TOKEN_REVIEW",
    "KindRef",
    "Object",
    "WatchEvent",
    "WatchEventType",
    "complete",
    "lapsed_policies",
    "of",
    "read_event",
    "selectors",
]


@dataclass(frozen=True, slots=True)
class KindRef:
    """A kind as the API server's paths name it."""

    group: str
    """API group; empty for the core group."""
    version: str
    """API version, such as ``v1``."""
    plural: str
    """Name in the path, such as ``pods``."""
    kind: str
    """Kind, such as ``Pod``."""
    namespaced: bool = True
    """Whether objects live in a namespace."""

    @property
    def api_version(self) -> str:
        """``group/version``, or only ``version`` in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Return the path of an object, or of the list without a name.

        Parameters
        ----------
        namespace
            Namespace; None means all namespaces (lists) or a kind without namespaces.
        name
            Name of the object; None means the list.
        subresource
            Such as ``status``; None means the object itself.

        Raises
        ------
        ValueError
            When a namespaced object is named without its namespace, or a namespace is given for
            a kind that has none: the server's response would not name the wrong call.
        """
        if self.namespaced and name is not None and not namespace:
            raise ValueError(f"{self.kind} {name!r} needs a namespace")
        if not self.namespaced and namespace:
            raise ValueError(f"{self.kind} has no namespace, but {namespace!r} was given")
        parts = ["apis", self.group] if self.group else ["api"]
        parts.append(self.version)
        if namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part is not None]
        return "/" + "/".join(quote(part, safe="") for part in parts)


@cache
def of(resource: type[Resource]) -> KindRef:
    """Return the path of a kind of the contract.

    Parameters
    ----------
    resource
        Model of the kind, such as `cloister_crds.kinds.Container`.
    """
    info = resource.INFO
    return KindRef(GROUP, VERSION, info.plural, info.kind, info.namespaced)


POD = KindRef("", "v1", "pods", "Pod")
SERVICE = KindRef("", "v1", "services", "Service")
CONFIG_MAP = KindRef("", "v1", "configmaps", "ConfigMap")
SECRET = KindRef("", "v1", "secrets", "Secret")
NAMESPACE = KindRef("", "v1", "namespaces", "Namespace", namespaced=False)
NODE = KindRef("", "v1", "nodes", "Node", namespaced=False)
EVENT = KindRef("events.k8s.io", "v1", "events", "Event")
RESOURCE_QUOTA = KindRef("", "v1", "resourcequotas", "ResourceQuota")
RESOURCE_CLAIM = KindRef("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
LEASE = KindRef("coordination.k8s.io", "v1", "leases", "Lease")
ENDPOINT_SLICE = KindRef("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
SERVICE_CIDR = KindRef("networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR", namespaced=False)
NETWORK_POLICY = KindRef("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
POD_DISRUPTION_BUDGET = KindRef("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
PRIORITY_CLASS = KindRef(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
POD_METRICS = KindRef("metrics.k8s.io", "v1beta1", "pods", "PodMetrics")
ROLE_BINDING = KindRef("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
CUSTOM_RESOURCE_DEFINITION = KindRef(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)
POLICY = KindRef(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
)
POLICY_BINDING = KindRef(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)
TOKEN_REVIEW = KindRef(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False
)
GATEWAY_GROUP = "gateway.networking.k8s.io"
TLS_ROUTES = tuple(
    KindRef(GATEWAY_GROUP, version, "tlsroutes", "TLSRoute")
    for version in ("v1", "v1alpha3", "v1alpha2")
)
"""TLSRoute in the versions whose fields we use and that agree in them, the best first."""
REFERENCE_GRANTS = tuple(
    KindRef(GATEWAY_GROUP, version, "referencegrants", "ReferenceGrant")
    for version in ("v1", "v1beta1")
)
"""ReferenceGrant in the same way."""


POLICIES = (
    "cloister-enclave-parts",
    "cloister-enclave-tokens",
    "cloister-facade",
    "cloister-immutable",
    "cloister-no-entry",
    "cloister-operator",
    "cloister-operator-cluster",
    "cloister-organizations",
    "cloister-replaces",
    "cloister-secret-finalizers",
    "cloister-snapshots",
    "cloister-status",
    "cloister-tenant-metadata",
    "cloister-tokens",
)
"""Names of the ValidatingAdmissionPolicies (`crds/manifests/policies`)."""


def lapsed_policies(
    policies: Iterable[Mapping[str, Any]], bindings: Iterable[Mapping[str, Any]]
) -> dict[str, str]:
    """Return the policies that are not in force, by name, and why.

    Parameters
    ----------
    policies
        The ValidatingAdmissionPolicies of the cluster.
    bindings
        Its ValidatingAdmissionPolicyBindings.
    """
    found = {each["metadata"]["name"]: each["spec"] for each in policies}
    denying = {
        each["spec"]["policyName"]
        for each in bindings
        if "Deny" in each["spec"].get("validationActions", ())
    }
    lapsed = {}
    for name in POLICIES:
        if name not in found:
            lapsed[name] = "it does not exist"
        elif found[name].get("failurePolicy", "Fail") != "Fail":
            lapsed[name] = "its failurePolicy is not Fail"
        elif name not in denying:
            lapsed[name] = "no binding with the action Deny names it"
    return lapsed


Object = dict[str, Any]
"""An object of the API as JSON data."""


class WatchEventType(StrEnum):
    """Type of an event."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event of a watch."""

    type: WatchEventType
    """What happened."""
    object: Object
    """The object after it; of a bookmark only its resourceVersion means something."""


def read_event(line: bytes) -> WatchEvent:
    """Read one line of a watch.

    Raises
    ------
    KubeError
        When it is an ERROR event, such as `Gone`.
    Unavailable
        When the line is not an event.
    """
    try:
        body = msgspec.json.decode(line)
        kind, item = body["type"], body["object"]
        if kind == "ERROR":
            raise error_from_status(item)
        return WatchEvent(WatchEventType(kind), item)
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise Unavailable(
            0, "BadResponse", "the watch sent something that is not an event"
        ) from error


def selectors(label_selector: str | None, field_selector: str | None) -> dict[str, str]:
    """Return the query parameters of the selectors that are given."""
    query = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {key: value for key, value in query.items() if value}


def complete(ref: KindRef, body: Object) -> Object:
    """Return the body with apiVersion and kind."""
    return {"apiVersion": ref.api_version, "kind": ref.kind, **body}
