"""Who is who in a local cluster: certificates and kubeconfigs, one identity per component."""

import base64
from dataclasses import dataclass
from pathlib import Path

import yaml

from dev.cluster.layout import Layout
from dev.cluster.pki import Authority, Pair, service_account_key

__all__ = ["Identities", "make_identities"]


@dataclass(frozen=True, slots=True)
class Identities:
    """The certificates that the components name."""

    authority: Pair
    """The cluster's authority."""
    front_proxy_authority: Pair
    """Authority of the aggregation layer."""
    etcd: Pair
    """etcd, as server and member."""
    etcd_client: Pair
    """The API server, towards etcd."""
    apiserver: Pair
    """The API server, as server."""
    apiserver_kubelet: Pair
    """The API server, towards the kubelet."""
    front_proxy: Pair
    """The API server, towards extension servers."""
    kubelet: Pair
    """The kubelet, as server."""
    controller_manager: Pair
    """The controller manager, as server."""
    scheduler: Pair
    """The scheduler, as server."""
    service_accounts: Pair
    """Key pair of service account tokens."""


def make_identities(layout: Layout) -> Identities:
    """Make, or find, all certificates and kubeconfigs of a cluster."""
    folder = layout.path("pki")
    authority = Authority(folder, "ca")
    front = Authority(folder, "front-proxy-ca")
    local = ("localhost", "127.0.0.1")
    names = (
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        layout.service_address,
        layout.node_address,
        *local,
    )
    users = {
        "admin": ("kubernetes-admin", ("system:masters",)),
        "controller-manager": ("system:kube-controller-manager", ()),
        "scheduler": ("system:kube-scheduler", ()),
        "kubelet": (f"system:node:{layout.node}", ("system:nodes",)),
        "kube-proxy": ("system:kube-proxy", ()),
        "coredns": ("system:coredns", ()),
        "kwok": ("system:kwok", ()),
    }
    for file, (user, groups) in users.items():
        pair = authority.client(f"{file}-client", user=user, groups=groups)
        target = layout.kubeconfig if file == "admin" else layout.path("pki", f"{file}.kubeconfig")
        _write_kubeconfig(target, layout, authority.pair.certificate, pair, user)
    return Identities(
        authority=authority.pair,
        front_proxy_authority=front.pair,
        etcd=authority.server("etcd", names=local, both=True),
        etcd_client=authority.client("etcd-client", user="kube-apiserver"),
        apiserver=authority.server("apiserver", names=names),
        apiserver_kubelet=authority.client("apiserver-kubelet", user="kube-apiserver-kubelet"),
        front_proxy=front.client("front-proxy", user="front-proxy"),
        kubelet=authority.server("kubelet", names=(layout.node, layout.node_address, *local)),
        controller_manager=authority.server("controller-manager", names=local),
        scheduler=authority.server("scheduler", names=local),
        service_accounts=service_account_key(folder),
    )


def _write_kubeconfig(target: Path, layout: Layout, authority: Path, pair: Pair, user: str) -> None:
    def inline(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": layout.name,
                "cluster": {
                    "server": layout.api_url,
                    "certificate-authority-data": inline(authority),
                },
            }
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": inline(pair.certificate),
                    "client-key-data": inline(pair.key),
                },
            }
        ],
        "contexts": [{"name": layout.name, "context": {"cluster": layout.name, "user": user}}],
        "current-context": layout.name,
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    target.touch(mode=0o600)
    target.write_text(yaml.safe_dump(document, sort_keys=False))
