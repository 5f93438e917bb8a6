"""The local cluster itself: Pods really run, and it survives reboots and killed processes."""

import contextlib
import json
import os
import signal
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from dev import cluster as local
from dev.cluster.images import busybox_image, push
from dev.cluster.network import table_of
from dev.cluster.node import cgroup_root
from dev.cluster.requirements import mounts_below
from dev.demo.https_client import forward_port
from dev.plain_http import NO_TRUST
from tests.support.cluster.clusters import unique
from tests.support.waiting import until_sync

pytestmark = [pytest.mark.node, pytest.mark.nightly]

STATUS = ".status.containerStatuses[0].containerID"
SERVE = "mkdir -p /tmp/w && echo hello > /tmp/w/index.html && exec httpd -f -p 8080 -h /tmp/w"


@pytest.fixture(scope="module")
def image(cluster: local.Cluster) -> str:
    # Of two references to one image the kubelet names either: this one is no other test's.
    own = replace(busybox_image(), labels={"test": "local-cluster"})
    return push(own, cluster.registry, "tests/local-cluster", index=True)


def pod(name: str, image: str, script: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": image, "command": ["sh", "-c", script]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container], **spec},
    }


def apply(cluster: local.Cluster, namespace: str, *objects: dict[str, Any]) -> None:
    text = "\n---\n".join(json.dumps(one) for one in objects)
    cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=text)


def wait_ready(cluster: local.Cluster, namespace: str, name: str) -> None:
    wish = ("--for=condition=Ready", f"pod/{name}", "--timeout=90s")
    cluster.kubectl("wait", "-n", namespace, *wish)


def field(cluster: local.Cluster, namespace: str, kind: str, name: str, path: str) -> str:
    return cluster.kubectl("get", kind, name, "-n", namespace, f"-ojsonpath={{{path}}}")


def body_of(url: str) -> Callable[[], str]:
    def ask() -> str:
        try:
            return httpx.get(url, timeout=5, trust_env=False, verify=NO_TRUST).text
        except httpx.HTTPError:
            return ""

    return ask


@pytest.fixture
def served(cluster: local.Cluster, node_namespace: str, image: str) -> str:
    """Provide the name of a Pod that serves HTTP on 8080, behind a Service of the same name."""
    resources = {"limits": {"cpu": "500m", "memory": "64Mi"}}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    script = f"echo started; {SERVE}"
    apply(cluster, node_namespace, pod("web", image, script, resources=resources), service)
    wait_ready(cluster, node_namespace, "web")
    return "web"


def test_a_pod_pulled_by_digest_has_the_limits_of_the_whole_pod(
    cluster: local.Cluster, node_namespace: str, served: str, image: str
) -> None:
    status = field(cluster, node_namespace, "pod", served, ".status.containerStatuses[0].imageID")
    assert status.rpartition("@")[2] == image.rpartition("@")[2]
    groups = cluster.kubectl("exec", "-n", node_namespace, served, "--", "cat", "/proc/self/cgroup")
    memory = next(line for line in groups.splitlines() if ":memory:" in line or line[:2] == "0:")
    group = memory.rpartition(":")[2]
    assert group.startswith(cgroup_root(cluster.name))
    whole_pod = Path(group).parent.relative_to("/")
    limits = [
        Path("/sys/fs/cgroup/memory", whole_pod, "memory.limit_in_bytes"),
        Path("/sys/fs/cgroup", whole_pod, "memory.max"),
    ]
    found = [int(path.read_text()) for path in limits if path.exists()]
    assert found == [64 * 1024 * 1024]


def test_exec_logs_and_port_forward(
    cluster: local.Cluster, node_namespace: str, served: str
) -> None:
    said = cluster.kubectl("exec", "-n", node_namespace, served, "--", "echo", "inside")
    assert said == "inside\n"
    assert "started" in cluster.kubectl("logs", "-n", node_namespace, served)
    with forward_port(cluster, node_namespace, served, to=80) as port:
        url = f"http://127.0.0.1:{port}/"
        assert until_sync(body_of(url), what="a response through port-forward") == "hello\n"


def test_a_service_answers_this_machine_and_pods_by_name(
    cluster: local.Cluster, node_namespace: str, served: str
) -> None:
    pod_address = field(cluster, node_namespace, "pod", served, ".status.podIP")
    address = field(cluster, node_namespace, "service", served, ".spec.clusterIP")
    assert (
        until_sync(body_of(f"http://{pod_address}:8080/"), what="the Pod's response") == "hello\n"
    )
    assert until_sync(body_of(f"http://{address}/"), what="the Service's response") == "hello\n"
    name = f"http://{served}.{node_namespace}.svc.cluster.local/"
    ask = ("exec", "-n", node_namespace, served, "--", "wget", "-qO-", name)
    assert until_sync(lambda: cluster.kubectl(*ask, check=False), what="the name") == "hello\n"


def test_pods_have_user_namespaces(cluster: local.Cluster, node_namespace: str, image: str) -> None:
    apply(cluster, node_namespace, pod("mapped", image, "exec sleep 1000", hostUsers=False))
    wait_ready(cluster, node_namespace, "mapped")
    read = ("exec", "-n", node_namespace, "mapped", "--", "cat", "/proc/self/uid_map")
    inside, outside, _ = cluster.kubectl(*read).split()
    assert inside == "0"
    assert int(outside) >= 65536


def test_a_node_may_not_touch_another_node(cluster: local.Cluster) -> None:
    other = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "somebody-else"}}
    config = cluster.layout.config / "kubelet.kubeconfig"
    done = subprocess.run(
        [cluster.bin("kubectl"), f"--kubeconfig={config}", "create", "-f", "-"],
        input=json.dumps(other),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "is not allowed to" in done.stderr or "cannot" in done.stderr


def test_anonymous_requests_are_refused(cluster: local.Cluster) -> None:
    authority = str(cluster.layout.pki / "ca.crt")
    context = ssl.create_default_context(cafile=authority)
    for url in (
        f"{cluster.record.server}/api/v1/namespaces",
        f"https://{cluster.record.node_address}:10250/pods",
    ):
        assert httpx.get(url, verify=context, timeout=60, trust_env=False).status_code == 401


def test_a_second_up_is_a_quick_no_op(cluster: local.Cluster) -> None:
    before = cluster.components
    began = time.monotonic()
    again = local.up(cluster.name)
    assert time.monotonic() - began < 20
    assert again.components == before


@pytest.fixture(scope="module")
def second(cluster: local.Cluster) -> Iterator[local.Cluster]:
    """Provide another cluster with a node, beside the session's, that a test may harm."""
    name = f"{cluster.name[:12]}-{unique('b')}"
    try:
        found = local.up(name)
        image = push(busybox_image(), found.registry, "tests/busybox")
        apply(found, "default", pod("web", image, SERVE))
        wait_ready(found, "default", "web")
        yield found
    finally:
        local.down(name)


def kill(cluster: local.Cluster, *victims: str) -> None:
    for victim in victims:
        pid = cluster.components[victim]
        assert pid is not None, victim
        os.kill(pid, signal.SIGKILL)
    until_sync(lambda: not any(map(cluster.processes.is_running, victims)), what="their end")


def test_two_clusters_with_nodes_coexist(cluster: local.Cluster, second: local.Cluster) -> None:
    address = field(second, "default", "pod", "web", ".status.podIP")
    assert until_sync(body_of(f"http://{address}:8080/"), what="a response") == "hello\n"
    assert cluster.running


@pytest.mark.parametrize("victims", [("etcd",), ("containerd", "kubelet"), ("kube-apiserver",)])
def test_up_restarts_killed_processes_and_pods_survive(
    second: local.Cluster, victims: tuple[str, ...]
) -> None:
    before = field(second, "default", "pod", "web", STATUS)
    kill(second, *victims)
    local.up(second.name)
    assert second.running
    wait_ready(second, "default", "web")
    assert field(second, "default", "pod", "web", STATUS) == before


def test_up_recovers_after_all_processes_were_killed(second: local.Cluster) -> None:
    # As after a crash of the machine: mounts and Pods are left over.
    kill(second, *second.components)
    local.up(second.name)

    def response() -> str:
        # Until the kubelet reports, the Pod's status is the one before the crash.
        address = field(second, "default", "pod", "web", ".status.podIP")
        return body_of(f"http://{address}:8080/")() if address else ""

    assert (
        until_sync(response, within=240, what="the Pod's response after its restart") == "hello\n"
    )


def traces(cluster: local.Cluster) -> list[str]:
    """List what is left of a cluster on this machine."""
    index = cluster.record.index
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has exited meanwhile
            commands.append(path.read_bytes().decode(errors="replace"))
    found = [command for command in commands if f"{cluster.layout.folder}/" in command]
    found += mounts_below(cluster.layout.folder)
    found += [str(path) for path in Path("/run/netns").glob(f"cloister-{cluster.name}")]
    found += [str(path) for path in Path("/sys/class/net").glob(f"cloister{index}")]
    found += [str(path) for path in Path("/sys/fs/cgroup").glob(f"*{cgroup_root(cluster.name)}")]
    tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True)
    found += [
        line for line in tables.stdout.splitlines() if line.endswith(f" {table_of(cluster.name)}")
    ]
    found += [str(cluster.layout.folder)] if cluster.layout.folder.exists() else []
    return found


def test_down_leaves_no_trace_even_of_an_interrupted_run(
    cluster: local.Cluster, second: local.Cluster
) -> None:
    kill(second, *second.components)
    second.layout.record.write_text("{")
    local.down(second.name)
    assert traces(second) == []
    assert cluster.running
