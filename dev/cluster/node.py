"""The node: containerd, kubelet, kube-proxy, the cluster's DNS; or a simulated one.

Defines how each is configured and started. They run in the node's network namespace. The simulated
node is kwok: Pods become ready and those of Jobs complete, but nothing runs; for machines where no
kubelet can run, and for tests of scale.
"""

import json
import os
from pathlib import Path

import yaml

from dev.cluster.control_plane import Identities, responds
from dev.cluster.kubeapi import KubeAPI
from dev.cluster.layout import Layout, Record
from dev.cluster.network import namespace_of
from dev.cluster.processes import Component, write_config

ANNOTATION = "kwok.x-k8s.io/node"

STAGES = Path(__file__).parent / "kwok-stages.yaml"
"""Transitions of nodes and Pods; without stages kwok does nothing."""


def kwok(record: Record, programs: dict[str, Path], identities: Identities) -> Component:
    """Return the component kwok."""
    port = record.ports["kwok"]
    argv = (
        str(programs["kwok"]),
        f"--kubeconfig={identities.client('kwok', 'system:kwok')}",
        f"--config={STAGES}",
        f"--manage-nodes-with-annotation-selector={ANNOTATION}=fake",
        f"--server-address=127.0.0.1:{port}",
        "--node-lease-duration-seconds=40",
        "--cidr=10.0.0.0/16",
    )
    return Component(
        name="kwok",
        argv=argv,
        ready=lambda: responds(f"http://127.0.0.1:{port}/healthz"),
        files=(STAGES,),
        ports=(("127.0.0.1", port),),
    )


def add_node(record: Record, api: KubeAPI) -> None:
    """Add the simulated node.

    Parameters
    ----------
    record
        The cluster; the node has its name.
    """
    metadata = {
        "name": record.name,
        "annotations": {ANNOTATION: "fake"},
        "labels": {
            "kubernetes.io/hostname": record.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
        },
    }
    body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
    api.apply(f"/api/v1/nodes/{record.name}", body)


PAUSE = "cloister/pause:1"
"""Repository and tag of the pause image."""

SYS_RESOURCE = 24
"""Number of the capability CAP_SYS_RESOURCE (capabilities(7))."""


def cgroup_root(name: str) -> str:
    """Return the control group that holds all Pods of a cluster."""
    return f"/cloister-dev/{name}"


def node(
    layout: Layout, record: Record, programs: dict[str, Path], identities: Identities
) -> list[Component]:
    """Return the components of the node, in start order: DNS, containerd, kubelet, kube-proxy."""
    return [
        _dns(layout, record, programs, identities),
        _containerd(layout, record, programs),
        _kubelet(layout, record, programs, identities),
        _proxy(layout, record, programs, identities),
    ]


def _inside(record: Record) -> tuple[str, ...]:
    return ("nsenter", f"--net=/run/netns/{namespace_of(record.name)}", "--")


def may_raise_limits() -> bool:
    """Return whether this process may lower the OOM score of others (CAP_SYS_RESOURCE)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> SYS_RESOURCE & 1)
    return False


def upstream_resolvers(resolv_conf: Path = Path("/etc/resolv.conf")) -> list[str]:
    """List the name servers of this machine."""
    if not resolv_conf.exists():
        return []
    lines = (line.split() for line in resolv_conf.read_text().splitlines())
    return [words[1] for words in lines if len(words) > 1 and words[0] == "nameserver"]


def _dns(
    layout: Layout, record: Record, programs: dict[str, Path], identities: Identities
) -> Component:
    config = identities.client("coredns", "system:coredns")
    port = record.ports["dns-ready"]
    upstream = " ".join(upstream_resolvers())
    forward = (
        f"forward . {upstream}\n    cache 30" if upstream else "template ANY ANY { rcode NXDOMAIN }"
    )
    corefile = f"""\
cluster.local:53 in-addr.arpa:53 {{
    bind {record.host_address}
    errors
    ready 127.0.0.1:{port}
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {config}
        ttl 5
        fallthrough in-addr.arpa
    }}
    {forward.splitlines()[0] if upstream else ""}
}}
.:53 {{
    bind {record.host_address}
    errors
    {forward}
}}
"""
    path = write_config(layout.config / "Corefile", corefile)
    write_config(layout.config / "resolv.conf", f"nameserver {record.host_address}\n")
    return Component(
        name="coredns",
        argv=(str(programs["coredns"]), "-conf", str(path)),
        ready=lambda: responds(f"http://127.0.0.1:{port}/ready"),
        files=(path,),
        ports=((record.host_address, 53), ("127.0.0.1", port)),
    )


def _containerd(layout: Layout, record: Record, programs: dict[str, Path]) -> Component:
    socket = layout.sockets / "containerd.sock"
    config = write_config(
        layout.config / "containerd.toml", containerd_config(layout, record, programs)
    )
    _registry_hosts(layout, record)
    _cni_config(layout, record)
    programs_path = ":".join(str(programs[name].parent) for name in ("containerd", "runc", "ctr"))
    ctr = f"{programs['ctr']} --address {socket} version >/dev/null 2>&1"
    return Component(
        name="containerd",
        argv=(*_inside(record), str(programs["containerd"]), "--config", str(config)),
        # containerd searches its shim on PATH.
        environment={"PATH": f"{programs_path}:{os.environ['PATH']}"},
        ready=lambda: os.system(ctr) == 0,
        files=(config,),
    )


def containerd_config(layout: Layout, record: Record, programs: dict[str, Path]) -> str:
    """Build containerd's configuration (version 3, containerd's page "CRI Plugin Config Guide")."""
    # Without the capability a Pod fails with "can't get final child's PID from pipe".
    restrict = "false" if may_raise_limits() else "true"
    return f"""\
version = 3
root = "{layout.data / "containerd"}"
state = "{layout.sockets / "containerd"}"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.internal.v1.tracing"]

[grpc]
  address = "{layout.sockets / "containerd.sock"}"

[plugins."io.containerd.internal.v1.opt"]
  path = "{layout.data / "opt"}"

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{record.registry}/{PAUSE}"

[plugins."io.containerd.cri.v1.images".registry]
  config_path = "{layout.config / "registries"}"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = {restrict}
  netns_mounts_under_state_dir = true
  # By default every second, of each container, which on an idle node is most of what it does.
  stats_collect_period = "10s"

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{programs["bridge"].parent}"]
  conf_dir = "{layout.config / "cni"}"

[plugins."io.containerd.cri.v1.runtime".containerd]
  default_runtime_name = "runc"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  BinaryName = "{programs["runc"]}"
  Root = "{layout.sockets / "runc"}"
  SystemdCgroup = false
"""


def _registry_hosts(layout: Layout, record: Record) -> None:
    """Redirect the node to the registry, which image references address by loopback."""
    url = f"http://{record.host_address}:{record.ports['registry']}"
    text = f'server = "{url}"\n\n[host."{url}"]\n  capabilities = ["pull", "resolve"]\n'
    write_config(layout.config / "registries" / record.registry / "hosts.toml", text)


def _cni_config(layout: Layout, record: Record) -> None:
    ipam = {
        "type": "host-local",
        "dataDir": str(layout.data / "cni"),
        "ranges": [[{"subnet": record.pod_range}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": ipam,
    }
    portmap = {"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": True}}
    content = {
        "cniVersion": "1.0.0",
        "name": f"cloister-{record.name}",
        "plugins": [bridge, portmap],
    }
    write_config(layout.config / "cni" / "10-bridge.conflist", json.dumps(content, indent=2))


def kubelet_config(layout: Layout, record: Record, identities: Identities) -> dict[str, object]:
    """Build the kubelet's configuration (Kubernetes page "Kubelet Configuration (v1beta1)")."""
    hosts = [record.node_address, record.name, "127.0.0.1", "localhost"]
    serving = identities.ca.issue("kubelet-serving", f"system:node:{record.name}", hosts=hosts)
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": record.node_address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(identities.ca.certificate)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(serving.certificate),
        "tlsPrivateKeyFile": str(serving.key),
        "containerRuntimeEndpoint": f"unix://{layout.sockets / 'containerd.sock'}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup_root(record.name),
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDomain": "cluster.local",
        "clusterDNS": [record.host_address],
        "resolvConf": str(layout.config / "resolv.conf"),
        "podLogsDir": str(layout.data / "pod-logs"),
        "volumePluginDir": str(layout.data / "volume-plugins"),
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "makeIPTablesUtilChains": False,
        "maxPods": 200,
        "oomScoreAdj": -999 if may_raise_limits() else 0,
        "registryPullQPS": 0,
        "serializeImagePulls": False,
        "syncFrequency": "10s",
        "nodeStatusUpdateFrequency": "5s",
    }


def _kubelet(
    layout: Layout, record: Record, programs: dict[str, Path], identities: Identities
) -> Component:
    config = layout.config / "kubelet.yaml"
    write_config(config, yaml.safe_dump(kubelet_config(layout, record, identities)))
    user = f"system:node:{record.name}"
    argv = (
        *_inside(record),
        str(programs["kubelet"]),
        f"--config={config}",
        f"--kubeconfig={identities.client('kubelet', user, ('system:nodes',))}",
        f"--root-dir={layout.data / 'kubelet'}",
        f"--cert-dir={layout.data / 'kubelet-pki'}",
        f"--hostname-override={record.name}",
        f"--node-ip={record.node_address}",
    )
    return Component(
        name="kubelet",
        argv=argv,
        ready=lambda: _node_is_ready(layout, record),
        within=120,
        files=(config,),
    )


def _node_is_ready(layout: Layout, record: Record) -> bool:
    with KubeAPI(record.server, layout.pki) as api:
        found = api.get(f"/api/v1/nodes/{record.name}")
    if found is None:
        return False
    conditions = found.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _proxy(
    layout: Layout, record: Record, programs: dict[str, Path], identities: Identities
) -> Component:
    health = f"{record.node_address}:10256"
    kubeconfig_file = identities.client("kube-proxy", "system:kube-proxy")
    content = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(kubeconfig_file)},
        "clusterCIDR": record.pod_range,
        "hostnameOverride": record.name,
        "healthzBindAddress": health,
        "metricsBindAddress": "127.0.0.1:10249",
        "nftables": {"minSyncPeriod": "100ms"},
        # Zero keeps the machine's settings, which cannot be written in a namespace.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
        "oomScoreAdj": -999 if may_raise_limits() else 0,
    }
    config = write_config(layout.config / "kube-proxy.yaml", yaml.safe_dump(content))
    return Component(
        name="kube-proxy",
        argv=(*_inside(record), str(programs["kube-proxy"]), f"--config={config}"),
        ready=lambda: responds(f"http://{health}/healthz"),
        files=(config,),
    )
