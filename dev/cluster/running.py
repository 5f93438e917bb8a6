"""Brings a cluster up, finds it, takes it down: the library of the demo, tests, benchmarks.

`up` compares what runs with what should run and starts only the difference, so that a
second run takes a moment and a half-dead cluster is healed by the same call.
"""

import os
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dev.cluster import bootstrap, builds, images, kind, leftovers, machine, network, processes
from dev.cluster.control_plane import Identities, control_plane, registry
from dev.cluster.errors import ClusterError
from dev.cluster.kubeapi import KubeAPI
from dev.cluster.node import PAUSE, cgroup_root, node, upstream_resolvers
from dev.cluster.processes import Component
from dev.cluster.progress import Progress, duration
from dev.cluster.simulated import add_node, kwok
from dev.cluster.state import (
    DEFAULT_NAME,
    Form,
    Layout,
    Record,
    free_port,
    layout,
    lock,
    others,
    port_is_free,
)

__all__ = ["Cluster", "down", "find", "form_here", "programs_of", "up"]

SERVER = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "registry")
NODE = (
    *("kube-scheduler", "coredns", "containerd", "containerd-shim-runc-v2", "ctr", "runc"),
    *("bridge", "host-local", "loopback", "portmap", "pause", "kubelet", "kube-proxy"),
)

#: In the order of their end.
COMPONENTS = (
    *("kwok", "kubelet", "kube-proxy", "containerd", "coredns", "kube-scheduler"),
    *("kube-controller-manager", "kube-apiserver", "etcd", "registry-node", "registry"),
)

PORTS = ("apiserver", "etcd", "etcd-peer", "controller-manager", "scheduler", "registry")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that runs, or that ran before a part of it ended."""

    layout: Layout
    record: Record

    @property
    def name(self) -> str:
        """Its name."""
        return self.record.name

    @property
    def form(self) -> Form:
        """What kind of cluster it is."""
        return self.record.form

    @property
    def node(self) -> bool:
        """Whether Pods really run on it."""
        return self.form in {Form.NODE, Form.KIND}

    @property
    def node_name(self) -> str | None:
        """Name of its node, pretended or not; None where there is none."""
        if self.form is Form.KIND:
            return f"cloister-{self.name}-control-plane"
        return None if self.form is Form.CONTROL_PLANE else self.name

    @property
    def kubeconfig(self) -> Path:
        """Its administrator's kubeconfig, complete in one file."""
        return self.layout.kubeconfig

    @property
    def registry(self) -> str:
        """Host and port of its registry, as image references name it; plain HTTP."""
        return self.record.registry

    @property
    def state_dir(self) -> Path:
        """Folder of all that belongs to it."""
        return self.layout.root

    @property
    def logs_dir(self) -> Path:
        """One log file per component."""
        return self.layout.logs

    @property
    def host_address(self) -> str:
        """Address by which Pods reach programs on this machine; loopback without a node."""
        return self.record.host_address

    @property
    def components(self) -> dict[str, int | None]:
        """Component -> its process id; None where it ended."""
        known = [name for name in COMPONENTS if (self.layout.logs / f"{name}.log").exists()]
        return {name: processes.pid_of(self.layout, name) for name in known}

    @property
    def running(self) -> bool:
        """Whether all its processes run."""
        if self.form is Form.KIND:
            return kind.runs(self.name)
        return bool(self.components) and all(self.components.values())

    def bin(self, name: str) -> Path:
        """Give the place of a program, built now if it never was.

        Parameters
        ----------
        name
            Such as ``kubectl`` or ``caddy``; ``versions.toml`` lists them.

        Returns
        -------
        Path
            Its place.

        Raises
        ------
        ClusterError
            When it cannot be built.
        """
        return builds.ensure([name])[name]

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 60) -> str:
        """Run kubectl as the administrator.

        Parameters
        ----------
        arguments
            Its arguments.
        stdin
            What it reads.
        timeout
            Seconds until it is ended.

        Returns
        -------
        str
            What it wrote.

        Raises
        ------
        ClusterError
            When it fails; with what it wrote to stderr.
        """
        done = subprocess.run(
            [str(self.bin("kubectl")), f"--kubeconfig={self.kubeconfig}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode != 0:
            raise ClusterError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def api(self) -> KubeAPI:
        """Open a small client of its API server, as the administrator."""
        return KubeAPI(self.record.server, self.layout.pki)


def form_here(*, node: bool, simulated: bool = False) -> Form:
    """Choose the form of a cluster on this machine.

    Parameters
    ----------
    node
        Whether Pods shall run.
    simulated
        Whether a node that only pretends is wanted.

    Returns
    -------
    Form
        kind where Docker answers, a node on Linux as root, else a simulated node.
    """
    if simulated:
        return Form.SIMULATED
    if not node:
        return Form.CONTROL_PLANE
    if machine.docker_answers():
        return Form.KIND
    return Form.NODE if os.geteuid() == 0 else Form.SIMULATED


def programs_of(form: Form) -> tuple[str, ...]:
    """List the programs that a form needs."""
    return {
        Form.CONTROL_PLANE: SERVER,
        Form.SIMULATED: (*SERVER, "kube-scheduler", "kwok"),
        Form.NODE: (*SERVER, *NODE),
        Form.KIND: (),
    }[form]


def find(name: str = DEFAULT_NAME) -> Cluster | None:
    """Find a cluster that was brought up and not taken down.

    Parameters
    ----------
    name
        Its name.

    Returns
    -------
    Cluster or None
        The cluster, whether its processes run or not; None when there is none.
    """
    places = layout(name)
    record = Record.read(places.record)
    return None if record is None else Cluster(places, record)


def up(
    name: str = DEFAULT_NAME,
    *,
    node: bool = True,
    simulated: bool = False,
    progress: Progress | None = None,
) -> Cluster:
    """Bring a cluster up, or heal what of it ended.

    Parameters
    ----------
    name
        Its name; several clusters run side by side.
    node
        Whether Pods shall run; False runs etcd, the API server, the controllers and
        the registry alone. A cluster with a node also serves who asks for none.
    simulated
        Take a node that only pretends.
    progress
        Where the way is shown; None shows it on stderr.

    Returns
    -------
    Cluster
        The running cluster.

    Raises
    ------
    ClusterError
        When something stands in the way; says what and the remedy.
    """
    progress = progress or Progress()
    since = time.monotonic()
    places = layout(name)
    with lock(name):
        known = Record.read(places.record)
        form = _form(known, node=node, simulated=simulated, progress=progress)
        if form is Form.KIND:
            return Cluster(places, kind.up(places, known, progress))
        machine.check_system(form)
        programs = _programs(form, progress)
        record = known or _new_record(places, form)
        started = _bring_up(places, record, programs, progress)
        if started:
            progress.say(
                f"cluster {name} ({form}) is up after {duration(time.monotonic() - since)}: "
                f"export KUBECONFIG={places.kubeconfig}"
            )
        return Cluster(places, record)


def _form(known: Record | None, *, node: bool, simulated: bool, progress: Progress) -> Form:
    form = form_here(node=node, simulated=simulated)
    if known is None:
        if form is Form.SIMULATED and not simulated:
            progress.say(
                "not root and no Docker here: the node is simulated, Pods only pretend to run"
            )
        return form
    serves = known.form is form or form is Form.CONTROL_PLANE or (node and known.form is Form.NODE)
    if not serves:
        raise ClusterError(
            f"cluster {known.name} exists with the form {known.form}, asked for is {form}: "
            f"take it down first (python -m dev.cluster down --name {known.name}) "
            "or choose another name"
        )
    return known.form


def _programs(form: Form, progress: Progress) -> dict[str, Path]:
    purposes = ["build", "node-build"] if form is Form.NODE else ["build"]
    needed = programs_of(form)
    todo = bool(builds.missing(needed))
    if form is Form.NODE:
        machine.install_packages(["node"], progress)
    if todo:
        machine.install_packages(purposes, progress)
    machine.check_room(form, build=todo, cache=builds.cache_folder())
    return builds.ensure(needed, progress)


def _new_record(places: Layout, form: Form) -> Record:
    with lock(""):
        neighbours = others(places.name)
        taken = {port for other in neighbours for port in other.ports.values()}
        record = Record(name=places.name, form=form)
        wanted = [*PORTS, *{Form.NODE: ["dns-ready"], Form.SIMULATED: ["kwok"]}.get(form, [])]
        for purpose in wanted:
            record.ports[purpose] = free_port(taken)
            taken.add(record.ports[purpose])
        if form is Form.NODE:
            record.index = network.choose_index({other.index for other in neighbours})
        places.make()
        record.save(places.record)
    return record


def _bring_up(
    places: Layout, record: Record, programs: dict[str, Path], progress: Progress
) -> bool:
    """Start what does not run; tells whether anything was started."""
    places.make()
    who = Identities(places, record)
    if record.form is Form.NODE:
        _prepare_node(places, record)
    server = [*registry(places, record, programs), *control_plane(places, record, programs, who)]
    started = _start(places, server, progress)
    if started:
        with KubeAPI(record.server, places.pki) as api:
            bootstrap.apply_first_objects(record, api)
    if record.form is Form.NODE:
        pause = images.pause_image(programs["pause"])
        repository, _, tag = PAUSE.partition(":")
        images.push(record.registry, repository, pause, tag=tag)
        started |= _start(places, node(places, record, programs, who), progress)
    elif record.form is Form.SIMULATED:
        started |= _start(places, [kwok(places, record, programs, who)], progress)
        with KubeAPI(record.server, places.pki) as api:
            add_node(record, api)
    return started


def _prepare_node(places: Layout, record: Record) -> None:
    node_processes = ("containerd", "kubelet", "kube-proxy")
    if not any(processes.alive(places, name) for name in node_processes):
        # A cut-off run or a restart of the machine: begin from a clean state.
        leftovers.clear_node(places, cgroup_root(record.name))
    resolver = any(address.startswith("127.") for address in upstream_resolvers())
    network.set_up(record, resolver)
    leftovers.make_cgroups(cgroup_root(record.name))


def _start(places: Layout, components: Iterable[Component], progress: Progress) -> bool:
    changed = False
    for component in components:
        if not processes.up_to_date(places, component):
            processes.stop(places, component.name)
            _check_ports(component)
            processes.start(places, component)
            changed = True
        processes.wait_for(places, component)
        if changed:
            progress.say(f"{component.name} serves")
    return changed


def _check_ports(component: Component) -> None:
    for address, port in component.ports:
        if not port_is_free(address, port):
            raise ClusterError(
                f"{component.name} needs the port {port} of {address}, and another program "
                "listens on it: end that program, or take the cluster down and up again "
                "(it then chooses other ports)"
            )


def down(name: str = DEFAULT_NAME, *, progress: Progress | None = None) -> bool:
    """Take a cluster down and remove all that belongs to it.

    Parameters
    ----------
    name
        Its name.
    progress
        Where the way is shown; None shows it on stderr.

    Returns
    -------
    bool
        Whether there was anything.

    Raises
    ------
    ClusterError
        When something of it cannot be removed.
    """
    progress = progress or Progress()
    places = layout(name)
    with lock(name):
        if not places.root.exists():
            return False
        record = Record.read(places.record)
        if record is not None and record.form is Form.KIND:
            kind.down(record)
        for component in COMPONENTS:
            processes.stop(places, component)
        if record is not None and record.form is Form.NODE:
            leftovers.clear_node(places, cgroup_root(name))
            network.tear_down(record)
        leftovers.clear_files(places)
    progress.say(f"cluster {name} is gone")
    return True
