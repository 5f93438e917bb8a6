"""The control plane: etcd, API server, controllers, scheduler, registry, and the first objects.

Defines how each is started and when it is ready; `dev.cluster.lifecycle` starts them.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import yaml

from dev.cluster.kubeapi import KubeAPI, serves
from dev.cluster.layout import Form, Layout, Record
from dev.cluster.pki import Authority, Pair, kubeconfig, service_account_keys
from dev.cluster.processes import Component, write_config
from dev.plain_http import NO_TRUST

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


RATE = ("--kube-api-qps=300", "--kube-api-burst=600")
"""Requests a second and burst that the controllers may make; with the defaults of the
components (20 and 30) they, not the server, are what a test of scale measures."""

WRITES = Path(__file__).parent / "audit-policy.yaml"
"""Audit policy of the API server of a simulated cluster."""
ACCOUNTS = Path(__file__).parent / "audit-accounts.yaml"
"""Audit policy of another cluster that is audited."""

TLS = "--tls-min-version=VersionTLS12"
"""Lower TLS versions are used by none of the components."""


class Identities:
    """Certificates and kubeconfig files of one cluster; created where they are missing."""

    def __init__(self, layout: Layout, record: Record) -> None:
        self._layout = layout
        self._record = record
        self.ca = Authority(layout.pki, "ca")
        self.etcd_ca = Authority(layout.pki, "etcd-ca")
        self.front_ca = Authority(layout.pki, "front-proxy-ca")
        self.tokens = service_account_keys(layout.pki)
        self.admin = self.ca.issue("admin", "cloister-admin", groups=["system:masters"])
        kubeconfig(
            layout.kubeconfig,
            cluster=record.name,
            server=record.server,
            authority=self.ca.certificate,
            pair=self.admin,
        )

    def client(self, file: str, common: str, groups: tuple[str, ...] = ()) -> Path:
        """Write the kubeconfig of a component and return its path."""
        pair = self.ca.issue(file, common, groups=groups)
        return kubeconfig(
            self._layout.config / f"{file}.kubeconfig",
            cluster=self._record.name,
            server=self._record.server,
            authority=self.ca.certificate,
            pair=pair,
        )

    def healthy(self, url: str, authority: Path | None = None) -> Callable[[], bool]:
        """Return a probe of a health endpoint, requested as the administrator."""
        certificate = authority or self.ca.certificate
        return lambda: serves(url, certificate, self.admin.certificate, self.admin.key)


def control_plane(
    layout: Layout, record: Record, programs: dict[str, Path], identities: Identities
) -> list[Component]:
    """Return the components of the control plane, in start order.

    Returns
    -------
    list[Component]
        etcd, the API server, the controllers; the scheduler where there is a node.
    """
    components = [
        _etcd(layout, record, programs, identities),
        _apiserver(layout, record, programs, identities),
        _controllers(record, programs, identities),
    ]
    if record.form is not Form.CONTROL_PLANE:
        components.append(_scheduler(record, programs, identities))
    return components


def _etcd(
    layout: Layout, record: Record, programs: dict[str, Path], identities: Identities
) -> Component:
    client, peer = record.ports["etcd"], record.ports["etcd-peer"]
    serving = identities.etcd_ca.issue("etcd", "etcd", hosts=["127.0.0.1", "localhost"])
    etcd_client = identities.etcd_ca.issue("etcd-client", "cloister-etcd-client")
    files = (f"--cert-file={serving.certificate}", f"--key-file={serving.key}")
    peers = (f"--peer-cert-file={serving.certificate}", f"--peer-key-file={serving.key}")
    argv = (
        str(programs["etcd"]),
        "--name=cloister",
        f"--data-dir={layout.data / 'etcd'}",
        f"--listen-client-urls=https://127.0.0.1:{client}",
        f"--advertise-client-urls=https://127.0.0.1:{client}",
        f"--listen-peer-urls=https://127.0.0.1:{peer}",
        f"--initial-advertise-peer-urls=https://127.0.0.1:{peer}",
        f"--initial-cluster=cloister=https://127.0.0.1:{peer}",
        *files,
        *peers,
        f"--trusted-ca-file={identities.etcd_ca.certificate}",
        f"--peer-trusted-ca-file={identities.etcd_ca.certificate}",
        "--client-cert-auth",
        "--peer-client-cert-auth",
        # Data may be lost with the machine's power, but not with a killed process.
        "--unsafe-no-fsync",
        "--auto-compaction-retention=1h",
    )
    url = f"https://127.0.0.1:{client}/health"
    authority = identities.etcd_ca.certificate
    return Component(
        name="etcd",
        argv=argv,
        ready=lambda: serves(url, authority, etcd_client.certificate, etcd_client.key),
        ports=(("127.0.0.1", client), ("127.0.0.1", peer)),
    )


def _apiserver(
    layout: Layout, record: Record, programs: dict[str, Path], identities: Identities
) -> Component:
    address, port = record.host_address, record.ports["apiserver"]
    policy = _audit_policy(record)
    argv = (
        str(programs["kube-apiserver"]),
        f"--bind-address={address}",
        f"--advertise-address={address}",
        f"--secure-port={port}",
        f"--service-cluster-ip-range={record.service_range}",
        *_apiserver_files(layout, record, identities),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--anonymous-auth=false",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--kubelet-preferred-address-types=InternalIP",
        "--enable-aggregator-routing=true",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        # Where scale is measured the administrator may profile the server (/debug/pprof).
        f"--profiling={str(record.form is Form.SIMULATED).lower()}",
        TLS,
        # Without a link the address is loopback, which is not valid for an endpoint.
        *(() if record.index >= 0 else ("--endpoint-reconciler-type=none",)),
        *_audit(layout, policy),
    )
    return Component(
        name="kube-apiserver",
        argv=argv,
        files=() if policy is None else (policy,),
        ready=identities.healthy(f"{record.server}/readyz"),
        within=120,
        ports=((address, port),),
    )


def _audit_policy(record: Record) -> Path | None:
    # On a simulated node scale is measured: count writes per client.
    if record.form is Form.SIMULATED:
        return WRITES
    return ACCOUNTS if record.audited else None


def _audit(layout: Layout, policy: Path | None) -> list[str]:
    if policy is None:
        return []
    return [
        f"--audit-policy-file={policy}",
        f"--audit-log-path={layout.audit_log}",
        "--audit-log-maxsize=10240",
    ]


def _apiserver_files(layout: Layout, record: Record, identities: Identities) -> list[str]:
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"]
    addresses = dict.fromkeys(["127.0.0.1", record.service_address, record.host_address])
    serving = identities.ca.issue(
        "apiserver",
        "kube-apiserver",
        hosts=[*names, "kubernetes.default.svc.cluster.local", *addresses],
    )
    kubelet = identities.ca.issue("apiserver-kubelet-client", "cloister-kubelet-client")
    front = identities.front_ca.issue("front-proxy-client", "front-proxy-client")
    etcd = Pair(layout.pki / "etcd-client.crt", layout.pki / "etcd-client.key")
    return [
        f"--etcd-servers=https://127.0.0.1:{record.ports['etcd']}",
        f"--etcd-cafile={identities.etcd_ca.certificate}",
        f"--etcd-certfile={etcd.certificate}",
        f"--etcd-keyfile={etcd.key}",
        f"--client-ca-file={identities.ca.certificate}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
        f"--kubelet-certificate-authority={identities.ca.certificate}",
        f"--kubelet-client-certificate={kubelet.certificate}",
        f"--kubelet-client-key={kubelet.key}",
        f"--service-account-key-file={identities.tokens.certificate}",
        f"--service-account-signing-key-file={identities.tokens.key}",
        f"--requestheader-client-ca-file={identities.front_ca.certificate}",
        f"--proxy-client-cert-file={front.certificate}",
        f"--proxy-client-key-file={front.key}",
    ]


def _controllers(record: Record, programs: dict[str, Path], identities: Identities) -> Component:
    port = record.ports["controller-manager"]
    name = "kube-controller-manager"
    config = identities.client("controller-manager", f"system:{name}")
    argv = (
        str(programs[name]),
        *_serving_flags(name, config, port, identities),
        f"--service-account-private-key-file={identities.tokens.key}",
        f"--root-ca-file={identities.ca.certificate}",
        f"--cluster-signing-cert-file={identities.ca.certificate}",
        f"--cluster-signing-key-file={identities.ca.key}",
        f"--requestheader-client-ca-file={identities.front_ca.certificate}",
        "--use-service-account-credentials=true",
        # Quotas that name a kind count it from the next sync on; five minutes are the default.
        "--resource-quota-sync-period=10s",
        *RATE,
    )
    return _probed(name, argv, port, identities)


def _scheduler(record: Record, programs: dict[str, Path], identities: Identities) -> Component:
    port = record.ports["scheduler"]
    name = "kube-scheduler"
    config = identities.client("scheduler", f"system:{name}")
    argv = (str(programs[name]), *_serving_flags(name, config, port, identities), *RATE)
    return _probed(name, argv, port, identities)


def _serving_flags(name: str, config: Path, port: int, identities: Identities) -> list[str]:
    pair = identities.ca.issue(f"{name}-serving", name, hosts=["127.0.0.1", "localhost"])
    return [
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        f"--client-ca-file={identities.ca.certificate}",
        f"--tls-cert-file={pair.certificate}",
        f"--tls-private-key-file={pair.key}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--leader-elect=false",
        "--profiling=false",
        TLS,
    ]


def _probed(name: str, argv: tuple[str, ...], port: int, identities: Identities) -> Component:
    return Component(
        name=name,
        argv=argv,
        ready=identities.healthy(f"https://127.0.0.1:{port}/healthz"),
        ports=(("127.0.0.1", port),),
    )


def registry(layout: Layout, record: Record, programs: dict[str, Path]) -> list[Component]:
    """Return the processes of the registry.

    It listens on loopback, which is how image references address it; where there is a
    node, a second, read-only process on the same storage serves the node.
    """
    port = record.ports["registry"]
    addresses = {"registry": "127.0.0.1"}
    if record.form is Form.NODE:
        addresses["registry-node"] = record.host_address
    return [_registry(layout, programs, name, address, port) for name, address in addresses.items()]


def _registry(
    layout: Layout, programs: dict[str, Path], name: str, address: str, port: int
) -> Component:
    storage = {
        "filesystem": {"rootdirectory": str(layout.data / "registry")},
        "delete": {"enabled": True},
        "maintenance": {
            "uploadpurging": {"enabled": False},
            "readonly": {"enabled": name != "registry"},
        },
    }
    # The secret signs the state of uploads; no other process needs it.
    secret_file = layout.pki / "registry-secret"
    if not secret_file.exists():
        secret_file.write_text(os.urandom(24).hex())
    content = {
        "version": 0.1,
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": storage,
        "http": {"addr": f"{address}:{port}", "secret": secret_file.read_text()},
    }
    path = layout.config / f"{name}.yaml"
    write_config(path, yaml.safe_dump(content))
    url = f"http://{address}:{port}/v2/"
    return Component(
        name=name,
        argv=(str(programs["registry"]), "serve", str(path)),
        ready=lambda: responds(url),
        files=(path,),
        environment={"OTEL_TRACES_EXPORTER": "none"},
        ports=((address, port),),
    )


def responds(url: str) -> bool:
    """Return whether a plain HTTP address responds with success."""
    try:
        return httpx.get(url, timeout=5, trust_env=False, verify=NO_TRUST).is_success
    except httpx.HTTPError:
        return False
