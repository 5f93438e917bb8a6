"""Configuration of the components: permissions, addresses, certificates. No cluster is started."""

import json
import ssl
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from dev.cluster import metrics, node
from dev.cluster.control_plane import Identities, control_plane, first_objects, registry
from dev.cluster.layout import Form, Layout, Record
from dev.cluster.lifecycle import programs_of
from dev.cluster.node import STAGES, kwok
from dev.cluster.processes import Component

PORTS = {
    name: 20000 + number
    for number, name in enumerate(
        (
            *("apiserver", "etcd", "etcd-peer", "controller-manager", "scheduler"),
            *("registry", "dns-ready", "kwok"),
        )
    )
}


class Plan:
    """The components of a cluster as they would be started."""

    def __init__(self, folder: Path, form: Form) -> None:
        self.layout = Layout(name="one", folder=folder)
        index = 7 if form is Form.NODE else -1
        self.record = Record(name="one", form=form, index=index, ports=PORTS)
        self.layout.make()
        programs = {name: Path("/bin") / name for name in programs_of(form)}
        self.who = Identities(self.layout, self.record)
        found = registry(self.layout, self.record, programs)
        found += control_plane(self.layout, self.record, programs, self.who)
        if form is Form.NODE:
            found += node.node(self.layout, self.record, programs, self.who)
            found.append(metrics.metrics_server(self.record, programs, self.who))
        if form is Form.SIMULATED:
            found.append(kwok(self.record, programs, self.who))
        self.components: dict[str, Component] = {one.name: one for one in found}

    def flags(self, name: str) -> dict[str, str]:
        """Return the flags that a component is started with."""
        pairs = (word[2:].partition("=") for word in self.components[name].argv if word[:2] == "--")
        return {flag: value for flag, _, value in pairs}

    def read(self, name: str) -> Any:
        """Return the content of a configuration file."""
        return yaml.safe_load((self.layout.config / name).read_text())


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return Plan(tmp_path / "one", Form.NODE)


def subject(path: Path) -> tuple[str, list[str]]:
    name = x509.load_pem_x509_certificate(path.read_bytes()).subject
    common = name.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    groups = name.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return str(common), [str(group.value) for group in groups]


def test_every_component_has_an_identity_of_its_own(plan: Plan) -> None:
    expected = {
        "admin": ("cloister-admin", ["system:masters"]),
        "controller-manager": ("system:kube-controller-manager", []),
        "scheduler": ("system:kube-scheduler", []),
        "kubelet": ("system:node:one", ["system:nodes"]),
        "kube-proxy": ("system:kube-proxy", []),
        "coredns": ("system:coredns", []),
        "metrics-server": ("system:metrics-server", []),
        "apiserver-kubelet-client": ("cloister-kubelet-client", []),
    }
    found = {name: subject(plan.layout.pki / f"{name}.crt") for name in expected}
    assert found == expected


def test_the_api_server_authenticates_and_authorizes_nodes(plan: Plan) -> None:
    flags = plan.flags("kube-apiserver")
    assert flags["authorization-mode"] == "Node,RBAC"
    assert flags["enable-admission-plugins"] == "NodeRestriction"
    assert flags["anonymous-auth"] == "false"
    assert flags["kubelet-certificate-authority"].endswith("/ca.crt")
    assert flags["requestheader-client-ca-file"].endswith("/front-proxy-ca.crt")


def test_no_component_skips_certificate_verification(plan: Plan) -> None:
    written = [path.read_text() for path in plan.layout.config.rglob("*") if path.is_file()]
    commands = [" ".join(one.argv) for one in plan.components.values()]
    for text in [*written, *commands, plan.layout.kubeconfig.read_text()]:
        assert "insecure" not in text


def test_everything_listens_on_loopback_or_the_link(plan: Plan) -> None:
    addresses = {address for one in plan.components.values() for address, _ in one.ports}
    assert addresses == {"127.0.0.1", "10.201.7.1"}
    assert plan.flags("kube-apiserver")["bind-address"] == "10.201.7.1"
    assert plan.read("kubelet.yaml")["address"] == "10.201.7.2"


def test_metrics_server_serves_where_the_api_server_looks_for_it(plan: Plan) -> None:
    bodies = {body["kind"]: body for _, body in metrics.objects(plan.record, "bundle")}
    (endpoint,) = bodies["EndpointSlice"]["endpoints"]
    (port,) = bodies["EndpointSlice"]["ports"]
    flags = plan.flags("metrics-server")
    (address,) = endpoint["addresses"]
    assert (address, str(port["port"])) == (flags["bind-address"], flags["secure-port"])
    assert (address, port["port"]) in plan.components["metrics-server"].ports
    service = bodies["APIService"]["spec"]["service"]
    name = f"{service['name']}.{service['namespace']}.svc"
    certificate = x509.load_pem_x509_certificate(Path(flags["tls-cert-file"]).read_bytes())
    served = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert name in served.get_values_for_type(x509.DNSName)


def test_metrics_server_reads_metrics_and_pods_alone(plan: Plan) -> None:
    bodies = [body for _, body in first_objects(plan.record)]
    (role,) = (
        body
        for body in bodies
        if (body["kind"], body["metadata"]["name"]) == ("ClusterRole", "cloister:metrics-server")
    )
    assert [(rule["resources"], rule["verbs"]) for rule in role["rules"]] == [
        (["nodes/metrics"], ["get"]),
        (["pods", "nodes"], ["get", "list", "watch"]),
    ]


def test_the_kubelet_delegates_authorization_to_the_api_server(plan: Plan) -> None:
    config = plan.read("kubelet.yaml")
    assert config["authentication"]["anonymous"] == {"enabled": False}
    assert config["authentication"]["webhook"] == {"enabled": True}
    assert config["authorization"] == {"mode": "Webhook"}
    assert config["cgroupRoot"] == "/cloister-dev/one"
    assert config["failCgroupV1"] is False


def test_the_node_runs_in_its_own_network_namespace(plan: Plan) -> None:
    for name in ("containerd", "kubelet", "kube-proxy"):
        assert plan.components[name].argv[:2] == ("nsenter", "--net=/run/netns/cloister-one")
    for name in ("kube-apiserver", "etcd", "registry", "coredns"):
        assert plan.components[name].argv[0] != "nsenter"


def test_containerd_pulls_from_the_registry_by_the_name_in_image_references(plan: Plan) -> None:
    config = tomllib.loads((plan.layout.config / "containerd.toml").read_text())
    assert config["version"] == 3
    images = config["plugins"]["io.containerd.cri.v1.images"]
    assert images["pinned_images"]["sandbox"].startswith(f"{plan.record.registry}/")
    hosts = Path(images["registry"]["config_path"], plan.record.registry, "hosts.toml")
    server = f"http://10.201.7.1:{PORTS['registry']}"
    assert tomllib.loads(hosts.read_text()) == {
        "server": server,
        "host": {server: {"capabilities": ["pull", "resolve"]}},
    }
    runc = config["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"]["runc"]
    assert runc["options"]["Root"].startswith(str(plan.layout.folder))


@pytest.mark.parametrize(("capable", "expected"), [(True, False), (False, True)])
def test_oom_scores_are_left_alone_where_they_may_not_be_changed(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, *, capable: bool, expected: bool
) -> None:
    monkeypatch.setattr(node, "may_raise_limits", lambda: capable)
    programs = {name: Path("/bin") / name for name in programs_of(Form.NODE)}
    text = node.containerd_config(plan.layout, plan.record, programs)
    runtime = tomllib.loads(text)["plugins"]["io.containerd.cri.v1.runtime"]
    assert runtime["restrict_oom_score_adj"] is expected
    assert node.kubelet_config(plan.layout, plan.record, plan.who)["oomScoreAdj"] == (
        -999 if capable else 0
    )


def test_pods_get_addresses_of_their_cluster_alone(plan: Plan) -> None:
    bridge = json.loads((plan.layout.config / "cni" / "10-bridge.conflist").read_text())
    ranges = bridge["plugins"][0]["ipam"]["ranges"]
    assert ranges == [[{"subnet": "10.202.7.0/24"}]]
    assert plan.read("kube-proxy.yaml")["clusterCIDR"] == "10.202.7.0/24"
    assert plan.flags("kube-apiserver")["service-cluster-ip-range"] == "10.203.7.0/24"


@pytest.mark.parametrize("lines", ["", "nameserver 192.0.2.53\nsearch x\nnameserver 127.0.0.53\n"])
def test_dns_forwards_external_names_to_the_machines_resolvers(tmp_path: Path, lines: str) -> None:
    file = tmp_path / "resolv.conf"
    file.write_text(lines)
    assert node.upstream_resolvers(file) == (["192.0.2.53", "127.0.0.53"] if lines else [])
    assert node.upstream_resolvers(tmp_path / "missing") == []


def test_without_a_node_only_the_control_plane_and_the_registry_run(tmp_path: Path) -> None:
    plan = Plan(tmp_path / "one", Form.CONTROL_PLANE)
    assert list(plan.components) == [
        *("registry", "etcd", "kube-apiserver", "kube-controller-manager"),
    ]
    flags = plan.flags("kube-apiserver")
    assert flags["bind-address"] == "127.0.0.1"
    assert flags["endpoint-reconciler-type"] == "none"


def test_a_simulated_node_has_stages_and_few_permissions(tmp_path: Path) -> None:
    plan = Plan(tmp_path / "one", Form.SIMULATED)
    assert {"kwok", "kube-scheduler"} <= plan.components.keys()
    stages = list(yaml.safe_load_all(STAGES.read_text()))
    assert {stage["spec"]["resourceRef"]["kind"] for stage in stages} == {"Node", "Pod"}
    roles = [body for path, body in first_objects(plan.record) if "/clusterroles/" in path]
    assert [role["metadata"]["name"] for role in roles] == ["cloister:kwok"]
    assert all(
        rule["resources"] != ["*"] or rule["apiGroups"] != [""] for rule in roles[0]["rules"]
    )


def test_the_kubeconfig_is_self_contained(plan: Plan) -> None:
    config = yaml.safe_load(plan.layout.kubeconfig.read_text())
    assert config["current-context"] == "cloister-one"
    (cluster,) = config["clusters"]
    assert cluster["cluster"].keys() == {"server", "certificate-authority-data"}
    assert plan.layout.kubeconfig.stat().st_mode & 0o077 == 0


def test_certificates_are_kept_by_a_second_run_and_are_valid(plan: Plan) -> None:
    before = {path.name: path.read_bytes() for path in plan.layout.pki.iterdir()}
    Identities(plan.layout, plan.record)
    assert {path.name: path.read_bytes() for path in plan.layout.pki.iterdir()} == before
    context = ssl.create_default_context(cafile=str(plan.layout.pki / "ca.crt"))
    context.load_cert_chain(plan.layout.pki / "admin.crt", plan.layout.pki / "admin.key")
    serving = x509.load_pem_x509_certificate((plan.layout.pki / "apiserver.crt").read_bytes())
    names = serving.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = {str(address) for address in names.get_values_for_type(x509.IPAddress)}
    assert addresses == {"127.0.0.1", "10.203.7.1", "10.201.7.1"}
    assert "localhost" in names.get_values_for_type(x509.DNSName)
