"""Start, find and end a local cluster: one library for the demo, the tests and the benchmarks."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dev.cluster import binaries, control_plane, kind, network, node
from dev.cluster.identities import make_identities
from dev.cluster.images import Image, archive
from dev.cluster.layout import Layout, find_layout, make_layout, state_folder
from dev.cluster.processes import Processes, wait_until
from dev.cluster.progress import Progress
from dev.cluster.requirements import choose_kind, docker_answers, provide
from dev.cluster.trouble import Trouble

__all__ = ["DEFAULT_NAME", "Cluster", "down", "find", "up"]

DEFAULT_NAME = "cloister"
"""Name of the cluster when none is given."""
RBAC = Path(__file__).parent / "bootstrap.yaml"
PATIENCE = 120.0
"""Seconds that a component may take to be ready on a busy machine."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A local cluster that was started."""

    layout: Layout
    """Its folder, addresses and ports."""

    @property
    def name(self) -> str:
        """Name of the cluster."""
        return self.layout.name

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.layout.kubeconfig

    @property
    def registry(self) -> str:
        """Host and port of the registry, as image references name it."""
        return self.layout.registry

    @property
    def has_node(self) -> bool:
        """Whether Pods really run."""
        return self.layout.kind in {"node", "kind"}

    @property
    def processes(self) -> Processes:
        """The components that run on this machine, with their logs."""
        return Processes(self.layout.path("processes"), self.layout.path("logs"))

    def bin(self, name: str) -> Path:
        """Answer the path of a program that belongs to the cluster, such as ``kubectl``."""
        for module in binaries.versions().values():
            if name in module.binaries:
                return binaries.binary(module.name, name)
        raise Trouble(f"{name} is none of the cluster's programs; versions.toml lists them")

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Run kubectl as the administrator and answer what it printed.

        Raises
        ------
        subprocess.CalledProcessError
            When it failed and `check` is set; `stderr` holds its words.
        """
        done = subprocess.run(
            [self.bin("kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments],
            check=check,
            capture_output=True,
            text=True,
            input=stdin,
        )
        return done.stdout if check else done.stdout + done.stderr


def find(name: str = DEFAULT_NAME) -> Cluster | None:
    """Answer a cluster that an earlier `up` made, running or not; None when there is none."""
    layout = find_layout(name)
    return Cluster(layout) if layout else None


def up(
    name: str = DEFAULT_NAME,
    *,
    node: bool = True,
    simulated: bool = False,
    progress: Progress | None = None,
) -> Cluster:
    """Start a cluster, or what is missing of one; seconds when it runs.

    Parameters
    ----------
    name
        Name of the cluster; several live side by side.
    node
        Whether it gets a node; without, it is a control plane for tests of the API alone.
    simulated
        Whether the node is simulated even where a real one could run.
    progress
        Where to tell what is done; None = standard error.

    Raises
    ------
    Trouble
        When this machine lacks something, or a component does not start; it says what to do.
    """
    progress = progress or Progress()
    with _lock(name):
        wanted = _wanted_kind(node=node, simulated=simulated)
        layout = find_layout(name) or make_layout(name, wanted)
        if layout.kind != wanted:
            raise Trouble(
                f"cluster {name} exists as {layout.kind!r}, not as {wanted!r}; "
                f"take another name or `python -m dev.cluster down --name {name}` first"
            )
        cluster = Cluster(layout)
        if wanted == "kind":
            kind.up(name, layout.kubeconfig, layout.registry)
            return cluster
        _start_control_plane(cluster, progress)
        if wanted == "node":
            _start_node(cluster, progress)
        elif wanted == "simulated":
            _start_simulation(cluster, progress)
    return cluster


def down(name: str = DEFAULT_NAME) -> bool:
    """End a cluster and remove all that it left; answer whether there was one."""
    layout = find_layout(name)
    folder = state_folder() / name
    if layout is None:
        _sweep_folder(folder)
        return False
    with _lock(name):
        cluster = Cluster(layout)
        if layout.kind == "kind":
            kind.down(name)
        if layout.kind == "node":
            _stop_pods(cluster)
        for process in reversed(cluster.processes.names()):
            cluster.processes.stop(process)
        if layout.kind == "node":
            network.remove_bridge(layout)
            network.remove_proxy_rules()
        _sweep_folder(folder)
    return True


def _wanted_kind(*, node: bool, simulated: bool) -> str:
    if not node:
        return "control-plane"
    if simulated:
        return "simulated"
    return choose_kind(platform=sys.platform, root=os.geteuid() == 0, docker=docker_answers())


def _start_control_plane(cluster: Cluster, progress: Progress) -> None:
    layout, run = cluster.layout, cluster.processes
    modules = ["kubernetes", "etcd"]
    if layout.kind == "node":
        _refuse_second_node(layout)
        provide(lambda text: print(text, end="", file=sys.stderr))
        modules += ["runc", "containerd", "cni", "coredns", "registry"]
    if layout.kind == "simulated":
        modules.append("kwok")
    programs = binaries.ensure(*modules, progress=progress)
    who = make_identities(layout)
    if layout.kind == "node":
        network.set_up_bridge(layout)
    began = not run.is_running("apiserver")
    run.start("etcd", control_plane.etcd(programs["etcd"], layout, who))
    run.start("apiserver", control_plane.apiserver(programs["kube-apiserver"], layout, who))
    run.await_ready("apiserver", lambda: _healthy(cluster), within=PATIENCE)
    run.start(
        "controller-manager",
        control_plane.controller_manager(programs["kube-controller-manager"], layout, who),
    )
    run.start("scheduler", control_plane.scheduler(programs["kube-scheduler"], layout, who))
    if began:
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(RBAC))
        _await(
            "the default service account",
            lambda: bool(cluster.kubectl("get", "sa", "default", "--ignore-not-found", "-oname")),
        )


def _start_node(cluster: Cluster, progress: Progress) -> None:
    layout, run = cluster.layout, cluster.processes
    programs = binaries.ensure("kubernetes", "runc", "containerd", "cni", "coredns", "registry")
    who = make_identities(layout)
    node.write_node_files(layout, who, programs)
    path = {"PATH": f"{programs['containerd'].parent}:{os.environ.get('PATH', '')}"}
    if not run.is_running("containerd"):
        # What an earlier containerd kept of its own state is of no use without its Pods.
        layout.path("containerd.sock").unlink(missing_ok=True)
    run.start("registry", node.registry(programs["registry"], layout), env=_quiet_registry())
    run.start("containerd", node.containerd(programs["containerd"], layout), env=path)
    run.await_ready("containerd", lambda: _containerd_answers(cluster), within=PATIENCE)
    _import_pause(cluster)
    run.start("coredns", node.coredns(programs["coredns"], layout))
    run.start("kube-proxy", node.proxy(programs["kube-proxy"], layout))
    run.start("kubelet", node.kubelet(programs["kubelet"], layout), env=path)
    if not _node_is_ready(cluster):
        with progress.step(f"waiting for node {layout.node}"):
            run.await_ready("kubelet", lambda: _node_is_ready(cluster), within=PATIENCE)


def _start_simulation(cluster: Cluster, progress: Progress) -> None:
    layout, run = cluster.layout, cluster.processes
    sys.stderr.write("this node is simulated: Pods are said to run, nothing really does\n")
    shutil.copy(Path(__file__).parent / "kwok-stages.yaml", layout.path("kwok-stages.yaml"))
    run.start("kwok", control_plane.kwok(binaries.binary("kwok"), layout))
    manifest = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": layout.node,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": layout.node},
        },
    }
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(manifest))
    with progress.step(f"waiting for simulated node {layout.node}"):
        run.await_ready("kwok", lambda: _node_is_ready(cluster), within=PATIENCE)


def _healthy(cluster: Cluster) -> bool:
    return cluster.kubectl("get", "--raw", "/readyz", check=False).strip() == "ok"


def _node_is_ready(cluster: Cluster) -> bool:
    path = '-ojsonpath={.status.conditions[?(@.type=="Ready")].status}'
    return cluster.kubectl("get", "node", cluster.layout.node, path, check=False) == "True"


def _containerd_answers(cluster: Cluster) -> bool:
    return _ctr(cluster, "version").returncode == 0


def _import_pause(cluster: Cluster) -> None:
    """Give the node the image that holds a Pod's namespaces."""
    listed = _ctr(cluster, "images", "list", "--quiet").stdout
    if node.PAUSE_IMAGE in listed.split():
        return
    program = cluster.layout.path("pause")
    subprocess.run(
        ["go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", program, "."],
        cwd=Path(__file__).parent / "pause",
        check=True,
        env={**os.environ, "CGO_ENABLED": "0"},
    )
    file = cluster.layout.path("pause.tar")
    image = Image(files={"/pause": program}, entrypoint=("/pause",), folders=())
    file.write_bytes(archive(image, node.PAUSE_IMAGE))
    done = _ctr(cluster, "images", "import", "--local", str(file))
    if done.returncode:
        raise Trouble(f"the pause image could not be imported: {done.stderr}")


def _ctr(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    socket = cluster.layout.path("containerd.sock")
    return subprocess.run(
        [cluster.bin("ctr"), "--address", str(socket), "--namespace", "k8s.io", *arguments],
        check=False,
        capture_output=True,
        text=True,
    )


def _stop_pods(cluster: Cluster) -> None:
    """End what the kubelet started: its containers outlive containerd."""
    cluster.processes.stop("kubelet")
    if not cluster.processes.is_running("containerd"):
        _kill_shims(cluster)
        return
    tasks = _ctr(cluster, "tasks", "list", "--quiet").stdout.split()
    for task in tasks:
        _ctr(cluster, "tasks", "kill", "--all", "--signal", "SIGKILL", task)
    wait_until(lambda: not _running_tasks(cluster), within=10)
    for task in tasks:
        _ctr(cluster, "tasks", "delete", "--force", task)
    for container in _ctr(cluster, "containers", "list", "--quiet").stdout.split():
        _ctr(cluster, "containers", "delete", container)
    _kill_shims(cluster)


def _running_tasks(cluster: Cluster) -> bool:
    return " RUNNING" in _ctr(cluster, "tasks", "list").stdout


def _kill_shims(cluster: Cluster) -> None:
    """Kill containerd's shims of this cluster, known by the socket's path on their command line."""
    mark = str(cluster.layout.path("containerd.sock")).encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if b"containerd-shim-runc-v2" in command and mark in command:
            subprocess.run(["kill", "-9", entry.name], check=False, capture_output=True)


def _refuse_second_node(layout: Layout) -> None:
    """kube-proxy's rules and the kubelet's control groups have fixed names: one node at a time."""
    for other in state_folder().glob("*/cluster.json"):
        name = other.parent.name
        found = find(name)
        if name == layout.name or found is None or found.layout.kind != "node":
            continue
        if found.processes.is_running("kubelet"):
            raise Trouble(
                f"cluster {name} runs a node on this machine, and one machine can be one node "
                f"only; end it with `python -m dev.cluster down --name {name}`"
            )


def _await(what: str, question: Callable[[], bool]) -> None:
    if not wait_until(question, within=PATIENCE):
        raise Trouble(f"{what} was not there within {PATIENCE:.0f} s")


def _quiet_registry() -> dict[str, str]:
    return {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"}


def _sweep_folder(folder: Path) -> None:
    if folder.exists():
        network.remove_mounts(folder)
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        raise Trouble(f"{folder} could not be removed; something is still mounted or open in it")


@contextmanager
def _lock(name: str) -> Iterator[None]:
    state_folder().mkdir(parents=True, exist_ok=True)
    with (state_folder() / f".{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
