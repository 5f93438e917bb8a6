"""The node's programs: command lines and configuration of containerd, kubelet, proxy and DNS."""

import json
import os
from pathlib import Path
from typing import Any

import yaml

from dev.cluster.identities import Identities
from dev.cluster.layout import Layout

__all__ = [
    "PAUSE_IMAGE",
    "cni_configuration",
    "containerd",
    "containerd_configuration",
    "coredns",
    "corefile",
    "kubelet",
    "kubelet_configuration",
    "proxy",
    "proxy_configuration",
    "registry",
    "registry_configuration",
    "write_node_files",
]

PAUSE_IMAGE = "cloister.invalid/pause:1"
"""Name of the image that holds a Pod's namespaces; made here, never pulled."""
CAP_SYS_RESOURCE = 24


def containerd_configuration(layout: Layout, binaries: dict[str, Path]) -> str:
    """Answer containerd's configuration (version 3)."""
    return f"""version = 3
root = "{layout.path("containerd", "root")}"
state = "{layout.path("containerd", "run")}"

[grpc]
  address = "{layout.path("containerd.sock")}"

[plugins."io.containerd.cri.v1.runtime"]
  # Without this capability no score may be lowered, and every Pod would fail to start.
  restrict_oom_score_adj = {json.dumps(not _has_capability(CAP_SYS_RESOURCE))}
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        BinaryName = "{binaries["runc"]}"
        SystemdCgroup = false
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{binaries["bridge"].parent}"]
    conf_dir = "{layout.path("cni")}"

[plugins."io.containerd.cri.v1.images"]
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{PAUSE_IMAGE}"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "{layout.path("registries")}"
"""


def cni_configuration(layout: Layout) -> dict[str, Any]:
    """Answer the Pod network: one bridge, addresses from the node's range, host ports."""
    return {
        "cniVersion": "1.0.0",
        "name": layout.name,
        "plugins": [
            {
                "type": "bridge",
                "bridge": layout.bridge,
                "isGateway": True,
                "ipMasq": True,
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(layout.path("addresses")),
                    "ranges": [[{"subnet": layout.pod_network}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def kubelet_configuration(layout: Layout, who: Identities) -> dict[str, Any]:
    """Answer the kubelet's configuration (Kubernetes, "Kubelet Configuration (v1beta1)")."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": layout.node_address,
        "port": layout.ports.kubelet,
        "readOnlyPort": 0,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": layout.ports.kubelet_health,
        "tlsCertFile": str(who.kubelet.certificate),
        "tlsPrivateKeyFile": str(who.kubelet.key),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(who.authority.certificate)},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{layout.path('containerd.sock')}",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "clusterDNS": [layout.node_address],
        "clusterDomain": "cluster.local",
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
            "nodefs.inodesFree": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "serializeImagePulls": False,
        "nodeStatusUpdateFrequency": "5s",
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
        "podLogsDir": str(layout.path("pod-logs")),
    }


def proxy_configuration(layout: Layout) -> dict[str, Any]:
    """Answer kube-proxy's configuration: nftables, since this kernel may lack IPVS."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": layout.pod_network,
        "hostnameOverride": layout.node,
        "healthzBindAddress": f"127.0.0.1:{layout.ports.proxy_health}",
        "metricsBindAddress": f"127.0.0.1:{layout.ports.proxy_metrics}",
        "clientConnection": {"kubeconfig": str(layout.path("pki", "kube-proxy.kubeconfig"))},
        # The table's size is the machine's affair.
        "conntrack": {"maxPerCore": 0, "min": 0},
    }


def corefile(layout: Layout) -> str:
    """Answer CoreDNS' configuration: names of the cluster; the rest goes to this machine's."""
    return f""".:53 {{
    bind {layout.node_address}
    errors
    health 127.0.0.1:{layout.ports.dns_health}
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {layout.path("pki", "coredns.kubeconfig")} {layout.name}
        pods insecure
        ttl 5
    }}
    forward . /etc/resolv.conf
    cache 5
}}
"""


def registry_configuration(layout: Layout) -> dict[str, Any]:
    """Answer the registry's configuration: files in the cluster's folder, loopback alone."""
    return {
        "version": "0.1",
        "log": {"level": "warn"},
        "storage": {
            "filesystem": {"rootdirectory": str(layout.path("registry"))},
            "delete": {"enabled": True},
        },
        "http": {"addr": layout.registry},
    }


def write_node_files(layout: Layout, who: Identities, binaries: dict[str, Path]) -> None:
    """Write all configuration files of the node."""
    mirror = layout.path("registries", layout.registry)
    files = {
        layout.path("containerd.toml"): containerd_configuration(layout, binaries),
        layout.path("cni", "10-pods.conflist"): json.dumps(cni_configuration(layout)),
        layout.path("kubelet.yaml"): yaml.safe_dump(kubelet_configuration(layout, who)),
        layout.path("kube-proxy.yaml"): yaml.safe_dump(proxy_configuration(layout)),
        layout.path("Corefile"): corefile(layout),
        mirror / "hosts.toml": f'server = "http://{layout.registry}"\n',
    }
    # Pods with a user namespace of their own must be able to walk to their root file system.
    layout.path("containerd").mkdir(mode=0o711, exist_ok=True)
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def containerd(program: Path, layout: Layout) -> list[str]:
    """Answer containerd's command line."""
    return [str(program), "--config", str(layout.path("containerd.toml")), "--log-level", "warn"]


def kubelet(program: Path, layout: Layout) -> list[str]:
    """Answer the kubelet's command line."""
    return [
        str(program),
        f"--config={layout.path('kubelet.yaml')}",
        f"--kubeconfig={layout.path('pki', 'kubelet.kubeconfig')}",
        f"--root-dir={layout.path('kubelet')}",
        f"--hostname-override={layout.node}",
        f"--node-ip={layout.node_address}",
    ]


def proxy(program: Path, layout: Layout) -> list[str]:
    """Answer kube-proxy's command line."""
    return [str(program), f"--config={layout.path('kube-proxy.yaml')}"]


def coredns(program: Path, layout: Layout) -> list[str]:
    """Answer CoreDNS' command line."""
    return [str(program), "-conf", str(layout.path("Corefile"))]


def registry(program: Path, layout: Layout) -> list[str]:
    """Answer the registry's command line."""
    path = layout.path("registry.yaml")
    path.write_text(yaml.safe_dump(registry_configuration(layout)))
    return [str(program), "serve", str(path)]


def _has_capability(number: int) -> bool:
    for line in Path(f"/proc/{os.getpid()}/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> number & 1)
    return False
