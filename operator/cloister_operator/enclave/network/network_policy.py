"""The NetworkPolicy of an organization's enclaves: network isolation of their Pods.

Ingress: only the shim's port. Egress: DNS, public addresses, and Cloister's API. It is the second
layer of isolation; the first is the guest's packet filter, on Hosts with networkIsolation
Container. In a cluster whose network plug-in enforces no policies only that one is left (see
docs/operator.md).
"""

from collections.abc import Sequence
from typing import Any

from cloister_crds.blocked_ranges import BLOCKED_IPV4, BLOCKED_IPV6, GLOBAL_UNICAST
from cloister_crds.names import (
    ENCLAVE_LABEL,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    ORGANIZATION_LABEL,
    SHELLS_LABEL,
    distinct_label,
)
from cloister_operator.enclave.network.addresses import (
    SHIM_PORT,
    SSH_PORT,
    ApiEndpoint,
    DnsResolver,
    ServicePods,
)

NETWORK_POLICY_NAME = "cloister-enclaves"
"""Name of the policy in each organization's namespace."""

_SHELLS_POLICY_NAME = "cloister-shells"
_DNS_PORT = 53
_NAMESPACE_NAME = "kubernetes.io/metadata.name"


def build_network_policy(
    organization: str,
    namespace: str,
    resolvers: Sequence[DnsResolver] = (),
    api: ApiEndpoint | None = None,
    *,
    api_pods: ServicePods | None = None,
    resolver_pods: Sequence[ServicePods] = (),
) -> dict[str, Any]:
    """Build the policy for all enclave Pods of a namespace.

    Parameters
    ----------
    resolvers
        Name servers that the administrator named; the cluster's own is always allowed.
    api
        The API; None if enclaves cannot reach it.
    api_pods, resolver_pods
        Pods of the API and of named name servers. A plugin judges a connection to a Service by the
        Service's address or by that of a Pod: each of the two is permitted.
    """
    dns = [{"port": _DNS_PORT, "protocol": protocol} for protocol in ("UDP", "TCP")]
    cluster_dns = {"namespaceSelector": {"matchLabels": {_NAMESPACE_NAME: "kube-system"}}}
    # Special-purpose ranges, such as private addresses, are excluded.
    public = [
        {"ipBlock": {"cidr": "0.0.0.0/0", "except": list(map(str, BLOCKED_IPV4))}},
        {"ipBlock": {"cidr": str(GLOBAL_UNICAST), "except": list(map(str, BLOCKED_IPV6))}},
    ]
    named = [
        {
            "to": [{"ipBlock": {"cidr": f"{each.address}/32"}}],
            "ports": [{"port": each.port, "protocol": protocol} for protocol in ("UDP", "TCP")],
        }
        for each in resolvers
    ]
    # Empty while the name of the API does not resolve.
    to_api = [
        {
            "to": [{"ipBlock": {"cidr": f"{address}/32"}} for address in api.addresses],
            "ports": [{"port": api.port, "protocol": "TCP"}],
        }
        for api in ([api] if api and api.addresses else [])
    ]
    pods = [
        *(_to_pods(each, "UDP", "TCP") for each in resolver_pods),
        *(_to_pods(each, "TCP") for each in ([api_pods] if api and api_pods else [])),
    ]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": NETWORK_POLICY_NAME,
            "namespace": namespace,
            "labels": {
                MANAGED_BY_LABEL: MANAGED_BY,
                ORGANIZATION_LABEL: distinct_label(organization),
            },
        },
        "spec": {
            "podSelector": {"matchExpressions": [{"key": ENCLAVE_LABEL, "operator": "Exists"}]},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [{"port": SHIM_PORT, "protocol": "TCP"}]}],
            "egress": [{"to": [cluster_dns], "ports": dns}, *named, *to_api, *pods, {"to": public}],
        },
    }


def _to_pods(pods: ServicePods, *protocols: str) -> dict[str, Any]:
    """Build the rule that permits connections to Pods."""
    return {
        "to": [
            {
                "namespaceSelector": {"matchLabels": {_NAMESPACE_NAME: pods.namespace}},
                "podSelector": {"matchLabels": dict(pods.labels)},
            }
        ],
        "ports": [{"port": pods.port, "protocol": protocol} for protocol in protocols],
    }


def build_shells_policy(organization: str, namespace: str) -> dict[str, Any]:
    """Build the policy that allows SSH to the debug enclaves of a namespace, and to no other."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": _SHELLS_POLICY_NAME,
            "namespace": namespace,
            "labels": {
                MANAGED_BY_LABEL: MANAGED_BY,
                ORGANIZATION_LABEL: distinct_label(organization),
            },
        },
        "spec": {
            "podSelector": {"matchExpressions": [{"key": SHELLS_LABEL, "operator": "Exists"}]},
            "policyTypes": ["Ingress"],
            "ingress": [{"ports": [{"port": SSH_PORT, "protocol": "TCP"}]}],
        },
    }
