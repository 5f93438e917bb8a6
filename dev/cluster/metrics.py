"""The Metrics API of a cluster with a node: metrics-server, and its registration as an API.

It runs on this machine's end of the link: the API server forwards requests to it there, and from
there it reaches the kubelet.
"""

import base64
from pathlib import Path
from typing import Any

from dev.cluster.control_plane import Identities
from dev.cluster.kubeapi import KubeAPI
from dev.cluster.layout import Record
from dev.cluster.processes import Component

PORT = 4443
"""Port on the link; each cluster has an address of its own there."""
NAME = "metrics-server"
NAMESPACE = "kube-system"


def metrics_server(record: Record, programs: dict[str, Path], identities: Identities) -> Component:
    """Return the component metrics-server."""
    address = record.host_address
    pair = identities.ca.issue(f"{NAME}-serving", NAME, hosts=[f"{NAME}.{NAMESPACE}.svc", address])
    config = identities.client(NAME, f"system:{NAME}")
    argv = (
        str(programs[NAME]),
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        f"--bind-address={address}",
        f"--secure-port={PORT}",
        f"--tls-cert-file={pair.certificate}",
        f"--tls-private-key-file={pair.key}",
        f"--kubelet-certificate-authority={identities.ca.certificate}",
        "--kubelet-preferred-address-types=InternalIP",
        # The shortest that it accepts, for tests that wait; a request must take less.
        "--metric-resolution=10s",
        "--kubelet-request-timeout=5s",
    )
    return Component(
        name=NAME,
        argv=argv,
        ready=identities.healthy(f"https://{address}:{PORT}/livez"),
        ports=((address, PORT),),
    )


def register(record: Record, api: KubeAPI, authority: Path) -> None:
    """Register metrics-server as the API ``metrics.k8s.io``; doing it again changes nothing.

    Only once it runs: while an API does not respond, no namespace is ever deleted to the end.
    """
    bundle = base64.b64encode(authority.read_bytes()).decode()
    for path, body in objects(record, bundle):
        api.apply(path, body)


def objects(record: Record, bundle: str) -> list[tuple[str, dict[str, Any]]]:
    """Return path and body of each object of the registration."""
    metadata = {"name": NAME, "namespace": NAMESPACE}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"ports": [{"name": "https", "port": 443, "targetPort": PORT}]},
    }
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**metadata, "labels": {"kubernetes.io/service-name": NAME}},
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": PORT, "protocol": "TCP"}],
        "endpoints": [{"addresses": [record.host_address], "conditions": {"ready": True}}],
    }
    registered = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": "v1beta1.metrics.k8s.io"},
        "spec": {
            "group": "metrics.k8s.io",
            "version": "v1beta1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "caBundle": bundle,
            "service": {"name": NAME, "namespace": NAMESPACE, "port": 443},
        },
    }
    spaced = f"namespaces/{NAMESPACE}"
    return [
        (f"/api/v1/{spaced}/services/{NAME}", service),
        (f"/apis/discovery.k8s.io/v1/{spaced}/endpointslices/{NAME}", endpoints),
        ("/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io", registered),
    ]
