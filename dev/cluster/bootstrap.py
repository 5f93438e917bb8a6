"""The first objects of a cluster: RBAC of the kubelet's callers, the DNS and metrics-server."""

from typing import Any

from dev.cluster.kubeapi import KubeAPI
from dev.cluster.layout import Form, Record

RBAC = "/apis/rbac.authorization.k8s.io/v1"
RBAC_VERSION = "rbac.authorization.k8s.io/v1"


def _role(name: str, rules: list[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    body = {
        "apiVersion": RBAC_VERSION,
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    }
    return f"{RBAC}/clusterroles/{name}", body


def _binding(name: str, role: str, user: str) -> tuple[str, dict[str, Any]]:
    group = "rbac.authorization.k8s.io"
    body = {
        "apiVersion": RBAC_VERSION,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
    return f"{RBAC}/clusterrolebindings/{name}", body


def _rule(group: str, resources: list[str], verbs: list[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


def first_objects(record: Record) -> list[tuple[str, dict[str, Any]]]:
    """Return path and body of each object that is applied to a new cluster."""
    read = ["get", "list", "watch"]
    objects = [
        # exec, logs and port-forward: the API server calls the kubelet as this user.
        _binding("cloister:kubelet-client", "system:kubelet-api-admin", "cloister-kubelet-client"),
    ]
    if record.form is Form.NODE:
        rules = [
            _rule("", ["services", "pods", "namespaces"], read),
            _rule("discovery.k8s.io", ["endpointslices"], read),
        ]
        objects += [
            _role("cloister:coredns", rules),
            _binding("cloister:coredns", "cloister:coredns", "system:coredns"),
            *_metrics_server(),
        ]
    if record.form is Form.SIMULATED:
        rules = [
            _rule("", ["nodes", "pods"], [*read, "update", "patch", "delete"]),
            _rule("", ["nodes/status", "pods/status"], ["update", "patch"]),
            _rule("", ["events"], ["create", "patch", "update"]),
            _rule("coordination.k8s.io", ["leases"], [*read, "create", "update", "patch"]),
            _rule("kwok.x-k8s.io", ["*"], read),
        ]
        objects += [
            _role("cloister:kwok", rules),
            _binding("cloister:kwok", "cloister:kwok", "system:kwok"),
        ]
    return objects


def _metrics_server() -> list[tuple[str, dict[str, Any]]]:
    """Permit metrics-server what its own manifests do."""
    name, user = "cloister:metrics-server", "system:metrics-server"
    reader = "extension-apiserver-authentication-reader"
    path, binding = _binding(name, reader, user)
    binding["kind"], binding["roleRef"]["kind"] = "RoleBinding", "Role"
    rules = [
        _rule("", ["nodes/metrics"], ["get"]),
        _rule("", ["pods", "nodes"], ["get", "list", "watch"]),
    ]
    return [
        _role(name, rules),
        _binding(name, name, user),
        _binding(f"{name}:delegator", "system:auth-delegator", user),
        (path.replace("/clusterrolebindings/", "/namespaces/kube-system/rolebindings/"), binding),
    ]


def apply_first_objects(record: Record, api: KubeAPI) -> None:
    """Apply the first objects; applying them again changes nothing."""
    for path, body in first_objects(record):
        api.apply(path, body)
