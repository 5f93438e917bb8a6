"""What the two accounts need: the rules of crds/manifests/roles, as a test compares."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["NEEDED", "Right", "Scope"]


class Scope(StrEnum):
    """Where a right is needed."""

    EVERYWHERE = "everywhere"
    ORGANIZATION = "in namespaces of organizations"
    SYSTEM = "in the namespace of the operator"
    NODE_LEASES = "in kube-node-lease"


@dataclass(frozen=True, slots=True)
class Right:
    """Verbs on resources of one group."""

    scope: Scope
    """Where."""
    group: str
    """API group; empty for the core group."""
    resources: str
    """Resources, separated by spaces."""
    verbs: str
    """Verbs, separated by spaces."""
    names: str = ""
    """Names of the objects, separated by spaces; empty = all."""


EVERYWHERE, ORGANIZATION = Scope.EVERYWHERE, Scope.ORGANIZATION
SYSTEM, NODE_LEASES = Scope.SYSTEM, Scope.NODE_LEASES
NEEDED: Final[dict[str, tuple[Right, ...]]] = {
    "operator": (
        Right(
            EVERYWHERE,
            "cloister.dev",
            "organizations hosts containers enclaves deployments secrets sshkeys "
            "registrycredentials domains hostnameclaims",
            "get list watch",
        ),
        Right(
            EVERYWHERE,
            "cloister.dev",
            "organizations/status hosts/status containers/status enclaves/status "
            "deployments/status secrets/status sshkeys/status "
            "registrycredentials/status domains/status",
            "patch",
        ),
        Right(EVERYWHERE, "cloister.dev", "enclaves", "create patch delete"),
        Right(EVERYWHERE, "cloister.dev", "deployments hostnameclaims", "create delete"),
        Right(EVERYWHERE, "cloister.dev", "hostnameclaims", "patch"),
        Right(EVERYWHERE, "cloister.dev", "organizations", "patch"),
        Right(
            EVERYWHERE,
            "cloister.dev",
            "organizations/finalizers containers/finalizers enclaves/finalizers",
            "update",
        ),
        Right(EVERYWHERE, "", "pods services", "get list watch"),
        Right(EVERYWHERE, "", "namespaces", "get list watch create delete"),
        Right(EVERYWHERE, "rbac.authorization.k8s.io", "rolebindings", "create"),
        Right(
            EVERYWHERE,
            "rbac.authorization.k8s.io",
            "rolebindings",
            "get patch delete",
            "cloister-api-organization cloister-operator-organization",
        ),
        Right(
            EVERYWHERE,
            "rbac.authorization.k8s.io",
            "clusterroles",
            "bind",
            "cloister-api-organization cloister-operator-organization",
        ),
        Right(EVERYWHERE, "", "nodes", "list watch"),
        Right(EVERYWHERE, "events.k8s.io", "events", "create"),
        Right(EVERYWHERE, "discovery.k8s.io", "endpointslices", "list watch"),
        Right(EVERYWHERE, "networking.k8s.io", "servicecidrs", "list"),
        Right(EVERYWHERE, "scheduling.k8s.io", "priorityclasses", "get create patch"),
        Right(EVERYWHERE, "gateway.networking.k8s.io", "tlsroutes", "get list watch"),
        Right(EVERYWHERE, "node.k8s.io", "runtimeclasses", "get"),
        Right(
            EVERYWHERE,
            "admissionregistration.k8s.io",
            "validatingadmissionpolicies validatingadmissionpolicybindings",
            "list",
        ),
        Right(EVERYWHERE, "apiextensions.k8s.io", "customresourcedefinitions", "get"),
        Right(ORGANIZATION, "", "pods", "create delete"),
        Right(ORGANIZATION, "", "services", "create patch delete"),
        Right(ORGANIZATION, "", "secrets", "get list create delete"),
        Right(ORGANIZATION, "", "configmaps", "get create delete"),
        Right(ORGANIZATION, "resource.k8s.io", "resourceclaims", "get create delete"),
        Right(ORGANIZATION, "networking.k8s.io", "networkpolicies", "get create patch delete"),
        Right(ORGANIZATION, "policy", "poddisruptionbudgets", "get create patch delete"),
        Right(ORGANIZATION, "", "resourcequotas", "get create patch delete"),
        Right(
            ORGANIZATION, "gateway.networking.k8s.io", "referencegrants", "get create patch delete"
        ),
        Right(SYSTEM, "coordination.k8s.io", "leases", "get create update"),
        Right(SYSTEM, "", "configmaps", "create patch", "cloister-installation"),
        Right(SYSTEM, "", "resourcequotas", "get", "cloister-kinds"),
        Right(SYSTEM, "gateway.networking.k8s.io", "tlsroutes", "create patch delete"),
        Right(NODE_LEASES, "coordination.k8s.io", "leases", "get"),
    ),
    "api": (
        Right(
            EVERYWHERE,
            "cloister.dev",
            "containers secrets registrycredentials domains",
            "get list watch create patch delete",
        ),
        Right(EVERYWHERE, "cloister.dev", "deployments", "get list watch create patch"),
        Right(EVERYWHERE, "cloister.dev", "sshkeys", "get list watch create delete"),
        Right(EVERYWHERE, "cloister.dev", "organizations enclaves", "get list watch"),
        Right(EVERYWHERE, "cloister.dev", "hosts", "list watch"),
        Right(EVERYWHERE, "cloister.dev", "hostnameclaims", "get list watch create patch"),
        Right(EVERYWHERE, "cloister.dev", "organizations", "patch"),
        Right(EVERYWHERE, "cloister.dev", "organizations/status", "patch"),
        Right(EVERYWHERE, "cloister.dev", "enclaves", "patch"),
        Right(EVERYWHERE, "authentication.k8s.io", "tokenreviews", "create"),
        Right(ORGANIZATION, "", "secrets", "get create patch delete"),
        Right(ORGANIZATION, "", "configmaps", "get"),
        Right(ORGANIZATION, "events.k8s.io", "events", "list create"),
        Right(SYSTEM, "", "configmaps", "list watch", "cloister-installation"),
    ),
}
"""What each program needs."""
