"""The processes of the control plane: etcd, API server, controllers, scheduler, registry.

Says how each is started and when it serves; `dev.cluster.lifecycle` starts them.
"""

import os
from collections.abc import Callable
from pathlib import Path

import httpx
import yaml

from dev.cluster.component import Component, write_config
from dev.cluster.kubeapi import serves
from dev.cluster.layout import Form, Layout, Record
from dev.cluster.pki import Authority, Pair, kubeconfig, service_account_keys
from dev.plain_http import NO_TRUST

__all__ = ["Identities", "answers", "control_plane", "registry"]

RATE = ("--kube-api-qps=300", "--kube-api-burst=600")
"""Requests a second and burst that the controllers may make; with the defaults of the
components (20 and 30) they, not the server, are what a test of scale measures."""

AUDIT_POLICY = Path(__file__).parent / "audit-policy.yaml"
"""Which requests the API server of a simulated cluster writes down."""

TLS = "--tls-min-version=VersionTLS12"
"""TLS versions below are not spoken by anything of ours."""


class Identities:
    """Certificates and kubeconfig files of one cluster; made where they are missing."""

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
        """Make the kubeconfig of a component."""
        pair = self.ca.issue(file, common, groups=groups)
        return kubeconfig(
            self._layout.config / f"{file}.kubeconfig",
            cluster=self._record.name,
            server=self._record.server,
            authority=self.ca.certificate,
            pair=pair,
        )

    def healthy(self, url: str, authority: Path | None = None) -> Callable[[], bool]:
        """Make the question whether an address answers, asked as the administrator."""
        certificate = authority or self.ca.certificate
        return lambda: serves(url, certificate, self.admin.certificate, self.admin.key)


def control_plane(
    layout: Layout, record: Record, programs: dict[str, Path], who: Identities
) -> list[Component]:
    """Return how the control plane is started, in its order.

    Parameters
    ----------
    layout
        Places of the cluster.
    record
        The cluster.
    programs
        Name of a program -> its place.
    who
        Certificates of the components.

    Returns
    -------
    list[Component]
        etcd, the API server, the controllers; the scheduler where there is a node.
    """
    components = [
        _etcd(layout, record, programs, who),
        _apiserver(layout, record, programs, who),
        _controllers(record, programs, who),
    ]
    if record.form is not Form.CONTROL_PLANE:
        components.append(_scheduler(record, programs, who))
    return components


def _etcd(layout: Layout, record: Record, programs: dict[str, Path], who: Identities) -> Component:
    client, peer = record.ports["etcd"], record.ports["etcd-peer"]
    serving = who.etcd_ca.issue("etcd", "etcd", hosts=["127.0.0.1", "localhost"])
    asking = who.etcd_ca.issue("etcd-client", "cloister-etcd-client")
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
        f"--trusted-ca-file={who.etcd_ca.certificate}",
        f"--peer-trusted-ca-file={who.etcd_ca.certificate}",
        "--client-cert-auth",
        "--peer-client-cert-auth",
        # The data may be lost with the machine's power, not with a killed process.
        "--unsafe-no-fsync",
        "--auto-compaction-retention=1h",
    )
    url = f"https://127.0.0.1:{client}/health"
    authority = who.etcd_ca.certificate
    return Component(
        name="etcd",
        argv=argv,
        ready=lambda: serves(url, authority, asking.certificate, asking.key),
        ports=(("127.0.0.1", client), ("127.0.0.1", peer)),
    )


def _apiserver(
    layout: Layout, record: Record, programs: dict[str, Path], who: Identities
) -> Component:
    address, port = record.host_address, record.ports["apiserver"]
    argv = (
        str(programs["kube-apiserver"]),
        f"--bind-address={address}",
        f"--advertise-address={address}",
        f"--secure-port={port}",
        f"--service-cluster-ip-range={record.service_range}",
        *_apiserver_files(layout, record, who),
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
        # Where scale is measured the administrator may ask where its time goes (/debug/pprof).
        f"--profiling={str(record.form is Form.SIMULATED).lower()}",
        TLS,
        # Without a link the address is loopback, which no endpoint may be.
        *(() if record.index >= 0 else ("--endpoint-reconciler-type=none",)),
        # On a simulated node scale is measured: who writes how often.
        *(_audit(layout) if record.form is Form.SIMULATED else ()),
    )
    return Component(
        name="kube-apiserver",
        argv=argv,
        files=(AUDIT_POLICY,),
        ready=who.healthy(f"{record.server}/readyz"),
        within=120,
        ports=((address, port),),
    )


def _audit(layout: Layout) -> list[str]:
    return [
        f"--audit-policy-file={AUDIT_POLICY}",
        f"--audit-log-path={layout.audit_log}",
        "--audit-log-maxsize=10240",
    ]


def _apiserver_files(layout: Layout, record: Record, who: Identities) -> list[str]:
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"]
    addresses = dict.fromkeys(["127.0.0.1", record.service_address, record.host_address])
    serving = who.ca.issue(
        "apiserver",
        "kube-apiserver",
        hosts=[*names, "kubernetes.default.svc.cluster.local", *addresses],
    )
    kubelet = who.ca.issue("apiserver-kubelet-client", "cloister-kubelet-client")
    front = who.front_ca.issue("front-proxy-client", "front-proxy-client")
    etcd = Pair(layout.pki / "etcd-client.crt", layout.pki / "etcd-client.key")
    return [
        f"--etcd-servers=https://127.0.0.1:{record.ports['etcd']}",
        f"--etcd-cafile={who.etcd_ca.certificate}",
        f"--etcd-certfile={etcd.certificate}",
        f"--etcd-keyfile={etcd.key}",
        f"--client-ca-file={who.ca.certificate}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
        f"--kubelet-certificate-authority={who.ca.certificate}",
        f"--kubelet-client-certificate={kubelet.certificate}",
        f"--kubelet-client-key={kubelet.key}",
        f"--service-account-key-file={who.tokens.certificate}",
        f"--service-account-signing-key-file={who.tokens.key}",
        f"--requestheader-client-ca-file={who.front_ca.certificate}",
        f"--proxy-client-cert-file={front.certificate}",
        f"--proxy-client-key-file={front.key}",
    ]


def _controllers(record: Record, programs: dict[str, Path], who: Identities) -> Component:
    port = record.ports["controller-manager"]
    name = "kube-controller-manager"
    config = who.client("controller-manager", f"system:{name}")
    argv = (
        str(programs[name]),
        *_served(name, config, port, who),
        f"--service-account-private-key-file={who.tokens.key}",
        f"--root-ca-file={who.ca.certificate}",
        f"--cluster-signing-cert-file={who.ca.certificate}",
        f"--cluster-signing-key-file={who.ca.key}",
        f"--requestheader-client-ca-file={who.front_ca.certificate}",
        "--use-service-account-credentials=true",
        *RATE,
    )
    return _asked(name, argv, port, who)


def _scheduler(record: Record, programs: dict[str, Path], who: Identities) -> Component:
    port = record.ports["scheduler"]
    name = "kube-scheduler"
    config = who.client("scheduler", f"system:{name}")
    argv = (str(programs[name]), *_served(name, config, port, who), *RATE)
    return _asked(name, argv, port, who)


def _served(name: str, config: Path, port: int, who: Identities) -> list[str]:
    pair = who.ca.issue(f"{name}-serving", name, hosts=["127.0.0.1", "localhost"])
    return [
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        f"--client-ca-file={who.ca.certificate}",
        f"--tls-cert-file={pair.certificate}",
        f"--tls-private-key-file={pair.key}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--leader-elect=false",
        "--profiling=false",
        TLS,
    ]


def _asked(name: str, argv: tuple[str, ...], port: int, who: Identities) -> Component:
    return Component(
        name=name,
        argv=argv,
        ready=who.healthy(f"https://127.0.0.1:{port}/healthz"),
        ports=(("127.0.0.1", port),),
    )


def registry(layout: Layout, record: Record, programs: dict[str, Path]) -> list[Component]:
    """Return how the registry is started.

    It listens on loopback, which is how image references name it; where there is a
    node, a second, reading process on the same storage serves the node.

    Parameters
    ----------
    layout
        Places of the cluster.
    record
        The cluster.
    programs
        Name of a program -> its place.
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
    # The secret signs the state of uploads; only this process reads it.
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
        ready=lambda: answers(url),
        files=(path,),
        environment={"OTEL_TRACES_EXPORTER": "none"},
        ports=((address, port),),
    )


def answers(url: str) -> bool:
    """Return whether a plain HTTP address answers with success."""
    try:
        return httpx.get(url, timeout=5, trust_env=False, verify=NO_TRUST).is_success
    except httpx.HTTPError:
        return False
