"""NetworkPolicies of enclaves under a real controller that judges connections by Pods.

kube-router filters what a node forwards, after kube-proxy has replaced the address of a Service by
that of a Pod. The enclave has no packet filter of its own here, so that only the policy is left.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloister_operator.enclave.network.network_policy import NETWORK_POLICY_NAME
from dev.cluster import Cluster, Progress
from dev.cluster.network import namespace_of
from dev.cluster.requirements import install_packages
from tests.cluster.test_enclave_certificate import (
    PATIENCE,
    RestartableApi,
    api,
    pages,
    sidecar,
    verified,
)
from tests.support.programs.operator import Installation, operator_lock
from tests.support.programs.web_service import PageServices, page_file
from tests.support.waiting import until_sync

__all__ = ["api", "pages"]

ASKED = os.environ.get("CLOISTER_TEST_POLICIES") == "kube-router"
"""Whether kube-router may filter for the whole node: ``make test-policies``."""
pytestmark = [
    pytest.mark.node,
    pytest.mark.programs(*(("kube-router",) if ASKED else ())),
    pytest.mark.skipif(not ASKED, reason="run `make test-policies`"),
]

API_LABELS = {"app.kubernetes.io/name": "cloister", "app.kubernetes.io/component": "api"}
"""Labels of the API's Pods, as the chart has them."""


@pytest.fixture(scope="module")
def enforced(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run kube-router on the node."""
    install_packages(["policies"], Progress())
    inside = ("nsenter", f"--net=/run/netns/{namespace_of(cluster.name)}", "--")
    # What Pods of one node send each other is forwarded by a bridge.
    subprocess.run([*inside, "sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=1"], check=True)
    log = tmp_path_factory.mktemp("kube-router") / "log"
    options = {
        "run-router": "false",
        "run-service-proxy": "false",
        "run-loadbalancer": "false",
        "run-firewall": "true",
        "kubeconfig": str(cluster.kubeconfig),
        "hostname-override": cluster.name,
        "service-cluster-ip-range": cluster.record.service_range,
        "health-port": "0",
        "iptables-sync-period": "5s",
    }
    command = [*inside, str(cluster.bin("kube-router"))]
    command += [f"--{name}={value}" for name, value in options.items()]
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT)
    try:
        yield
        assert process.poll() is None, log.read_text()[-4000:]
    finally:
        process.terminate()
        process.wait(60)
        subprocess.run([*inside, cluster.bin("kube-router"), "--cleanup-config"], check=False)


def listener(name: str, namespace: str, image: str, script: str, labels: Any) -> dict[str, Any]:
    """Return a Pod that listens."""
    container = {"name": "listener", "image": image, "command": ["sh", "-c", script]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }


@pytest.fixture(scope="module")
def installation(
    cluster: Cluster,
    enforced: None,
    pages: PageServices,
    api: RestartableApi,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Installation]:
    """Provide an operator whose enclaves reach the API by a Service with Pods."""
    folder = tmp_path_factory.mktemp("installation")
    with operator_lock(cluster.name):
        installed = Installation(cluster, folder, pages.settings | {"signedCertificates": True})
        try:
            installed.prepare()
            host, port = api.facade.base.removeprefix("http://").split(":")
            forward = f"nc -ll -p 9090 -e echo & exec nc -ll -p 8080 -e nc {host} {port}"
            answer = "exec nc -ll -p 8080 -e echo"
            service = {"ports": [{"port": 80, "targetPort": 8080}], "selector": API_LABELS}
            installed.apply(
                listener("api", installed.system, pages.web, forward, API_LABELS),
                listener("stranger", installed.system, pages.web, answer, {"app": "stranger"}),
                {
                    "apiVersion": "v1",
                    "kind": "Service",
                    "metadata": {"name": "cloister-api", "namespace": installed.system},
                    "spec": service,
                },
            )
            installed.kubectl(
                *("wait", "--for=condition=Ready", "--timeout=120s", "-n", installed.system),
                *("pod/api", "pod/stranger"),
            )
            installed.settings["apiAddress"] = f"http://{service_address(installed)}"
            installed.create_organization(host={"networkIsolation": "Pod"})
            installed.repository("acme/web").release("v1.0.0", page_file(pages.web, "one"))
            installed.operator().wait_until_it_leads()
            installed.create_container("web", repo="acme/web", tag="v1.0.0")
            installed.wait_for("web", "Ready", within=PATIENCE)
            yield installed
        finally:
            installed.end()


def service_address(installation: Installation) -> str:
    """Return the address of the API's Service."""
    return installation.kubectl(
        *("get", "service", "cloister-api", "-n", installation.system),
        "-ojsonpath={.spec.clusterIP}",
    )


def pod_address(installation: Installation, name: str) -> str:
    """Return the address of a Pod in the operator's namespace."""
    return installation.kubectl(
        *("get", "pod", name, "-n", installation.system), "-ojsonpath={.status.podIP}"
    )


def connects(process: int, address: str, port: int) -> bool:
    """Return whether a connection is accepted, from the network of a process."""
    command = ("nsenter", "-t", str(process), "-n", "/bin/busybox", "nc", "-w", "2")
    done = subprocess.run(
        [*command, address, str(port)], input=b"", capture_output=True, check=False
    )
    return done.returncode == 0


def of_pod(installation: Installation, name: str) -> int:
    """Return the id of a process in a Pod of the operator's namespace."""
    uid = installation.kubectl(
        *("get", "pod", name, "-n", installation.system), "-ojsonpath={.metadata.uid}"
    )
    for process in Path("/proc").glob("[0-9]*"):
        try:
            groups = (process / "cgroup").read_text().replace("_", "-")
        except OSError:
            continue
        if uid in groups:
            return int(process.name)
    raise AssertionError(f"no process of the Pod {name}")


def test_a_certificate_is_signed_through_the_service_of_the_api(
    installation: Installation, pages: PageServices, api: RestartableApi
) -> None:
    verified(pages, installation, api.authority)


def test_an_enclave_reaches_the_api_and_nothing_else_of_the_cluster(
    installation: Installation,
) -> None:
    enclave = sidecar(installation)
    assert connects(enclave, service_address(installation), 80)
    assert connects(enclave, pod_address(installation, "api"), 8080)
    for name, port in (("api", 9090), ("stranger", 8080)):
        address = pod_address(installation, name)
        assert connects(of_pod(installation, "stranger"), address, port), "the control"
        assert not connects(enclave, address, port), f"{name}:{port}"


def test_only_the_port_of_the_shim_is_reached_in_an_enclave(installation: Installation) -> None:
    (pod,) = installation.objects("pods")
    address, stranger = pod["status"]["podIP"], of_pod(installation, "stranger")
    assert connects(stranger, address, 8443)
    assert not connects(stranger, address, 8080)


def test_the_address_of_the_service_alone_is_not_enough(installation: Installation) -> None:
    """The control of all above: without the rule for Pods the API is out of reach."""
    policy = ("networkpolicy", NETWORK_POLICY_NAME, "-n", installation.namespace)
    found = yaml.safe_load(installation.kubectl("get", *policy, "-o", "json"))
    egress = found["spec"]["egress"]
    kept = [rule for rule in egress if "podSelector" not in rule["to"][0]]
    assert len(kept) == len(egress) - 1
    patch = json.dumps({"spec": {"egress": kept}})
    installation.kubectl("patch", *policy, "--type=merge", "-p", patch)
    enclave, address = sidecar(installation), service_address(installation)
    until_sync(lambda: not connects(enclave, address, 80), within=60, what="the policy's effect")
