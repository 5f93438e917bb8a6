"""Tokens of Pods, as a kubelet requests them for the volumes that it mounts."""

from typing import Any

from cloister_clients.kube import KindRef

__all__ = ["KUBELET_GROUPS", "KUBELET_USER", "SERVICE_ACCOUNT", "token_path", "token_request"]

SERVICE_ACCOUNT = KindRef("", "v1", "serviceaccounts", "ServiceAccount")
"""Kind of the accounts whose tokens they are."""
KUBELET_USER = "kubelet-of-tests"
"""Whom a test impersonates to request one; not named as a node, since the Pod is on none."""
KUBELET_GROUPS = ("system:nodes", "system:masters")
"""Groups of that user: admission knows kubelets by the first, and to the other RBAC permits all."""


def token_path(namespace: str, account: str = "default") -> str:
    """Return the path at which a token of an account is requested."""
    return SERVICE_ACCOUNT.path(namespace, account, "token")


def token_request(audience: str, pod: str, uid: str) -> dict[str, Any]:
    """Build the request of a Pod's token.

    Parameters
    ----------
    audience
        Audience; empty = the API server's own.
    pod, uid
        Name and uid of the Pod; empty = the token is bound to none.
    """
    spec: dict[str, Any] = {"expirationSeconds": 600}
    if audience:
        spec["audiences"] = [audience]
    if pod:
        bound = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}
        spec["boundObjectRef"] = bound
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
