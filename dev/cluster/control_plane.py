"""The control plane's programs: command lines of etcd, API server, controllers and scheduler."""

from pathlib import Path

from dev.cluster.identities import Identities
from dev.cluster.layout import Layout

__all__ = ["apiserver", "controller_manager", "etcd", "kwok", "scheduler"]


def etcd(program: Path, layout: Layout, who: Identities) -> list[str]:
    """Answer etcd's command line: one member, without fsync, since nothing here must last."""
    client = f"https://127.0.0.1:{layout.ports.etcd}"
    peer = f"https://127.0.0.1:{layout.ports.etcd_peer}"
    return [
        str(program),
        "--name=local",
        f"--data-dir={layout.path('etcd')}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=local={peer}",
        f"--cert-file={who.etcd.certificate}",
        f"--key-file={who.etcd.key}",
        "--client-cert-auth",
        f"--trusted-ca-file={who.authority.certificate}",
        f"--peer-cert-file={who.etcd.certificate}",
        f"--peer-key-file={who.etcd.key}",
        "--peer-client-cert-auth",
        f"--peer-trusted-ca-file={who.authority.certificate}",
        "--log-level=warn",
    ]


def apiserver(program: Path, layout: Layout, who: Identities) -> list[str]:
    """Answer the API server's command line.

    Without a node it listens on the loopback alone, and its own Service gets no endpoint:
    Kubernetes refuses loopback addresses there.
    """
    command = [
        str(program),
        f"--etcd-servers=https://127.0.0.1:{layout.ports.etcd}",
        f"--etcd-cafile={who.authority.certificate}",
        f"--etcd-certfile={who.etcd_client.certificate}",
        f"--etcd-keyfile={who.etcd_client.key}",
        f"--bind-address={layout.api_address}",
        f"--secure-port={layout.ports.apiserver}",
        f"--tls-cert-file={who.apiserver.certificate}",
        f"--tls-private-key-file={who.apiserver.key}",
        f"--client-ca-file={who.authority.certificate}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={who.service_accounts.certificate}",
        f"--service-account-signing-key-file={who.service_accounts.key}",
        f"--service-cluster-ip-range={layout.service_network}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--kubelet-certificate-authority={who.authority.certificate}",
        f"--kubelet-client-certificate={who.apiserver_kubelet.certificate}",
        f"--kubelet-client-key={who.apiserver_kubelet.key}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--requestheader-client-ca-file={who.front_proxy_authority.certificate}",
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={who.front_proxy.certificate}",
        f"--proxy-client-key-file={who.front_proxy.key}",
        "--allow-privileged=true",
        "--profiling=false",
    ]
    if layout.kind == "node":
        return [*command, f"--advertise-address={layout.node_address}"]
    return [*command, "--advertise-address=192.0.2.1", "--endpoint-reconciler-type=none"]


def controller_manager(program: Path, layout: Layout, who: Identities) -> list[str]:
    """Answer the controller manager's command line."""
    kubeconfig = layout.path("pki", "controller-manager.kubeconfig")
    return [
        str(program),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.ports.controller_manager}",
        f"--tls-cert-file={who.controller_manager.certificate}",
        f"--tls-private-key-file={who.controller_manager.key}",
        f"--root-ca-file={who.authority.certificate}",
        f"--service-account-private-key-file={who.service_accounts.key}",
        f"--cluster-signing-cert-file={who.authority.certificate}",
        f"--cluster-signing-key-file={who.authority.key}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        # With the defaults (20 and 30) these limits are what a scale test measures.
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        "--profiling=false",
    ]


def scheduler(program: Path, layout: Layout, who: Identities) -> list[str]:
    """Answer the scheduler's command line."""
    kubeconfig = layout.path("pki", "scheduler.kubeconfig")
    return [
        str(program),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.ports.scheduler}",
        f"--tls-cert-file={who.scheduler.certificate}",
        f"--tls-private-key-file={who.scheduler.key}",
        "--leader-elect=false",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        "--profiling=false",
    ]


def kwok(program: Path, layout: Layout) -> list[str]:
    """Answer the command line of the simulated node's controller."""
    return [
        str(program),
        f"--kubeconfig={layout.path('pki', 'kwok.kubeconfig')}",
        f"--config={layout.path('kwok-stages.yaml')}",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        "--cidr=10.250.0.0/16",
        "--node-ip=10.250.255.1",
        f"--server-address=127.0.0.1:{layout.ports.kwok}",
    ]
