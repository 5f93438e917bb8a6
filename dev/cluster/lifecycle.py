"""Starts, finds and stops local clusters, for the demo, the tests and the benchmarks.

`up` compares the running processes with the desired ones and starts only the difference, so that a
second run takes a moment and the same call repairs a cluster of which some processes have exited.
"""

import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from dev.cluster import binaries, images, kind, network, requirements
from dev.cluster.binaries import load
from dev.cluster.cluster import COMPONENTS, Cluster
from dev.cluster.control_plane import (
    Identities,
    apply_first_objects,
    control_plane,
    registry,
)
from dev.cluster.kind import docker
from dev.cluster.kubeapi import KubeAPI
from dev.cluster.layout import (
    DEFAULT_NAME,
    Form,
    Layout,
    LocalClusterError,
    Record,
    free_port,
    layout,
    lock,
    others,
)
from dev.cluster.metrics import metrics_server, register
from dev.cluster.node import PAUSE, add_node, cgroup_root, kwok, node, upstream_resolvers
from dev.cluster.processes import Component, Processes, Progress, duration, start

FORM = "CLOISTER_CLUSTER_FORM"
"""Variable with the form of new clusters with a node, ``node`` or ``kind``; else what is here."""
RELEASE = "CLOISTER_KUBERNETES"
"""Variable with the minor release of the API servers of new clusters without a node."""
_API_SERVER = "kube-apiserver"
SERVER = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "registry")
NODE = (
    *("kube-scheduler", "coredns", "containerd", "containerd-shim-runc-v2", "ctr", "runc"),
    *("bridge", "host-local", "loopback", "portmap", "pause", "kubelet", "kube-proxy"),
    "metrics-server",
)


PORTS = ("apiserver", "etcd", "etcd-peer", "controller-manager", "scheduler", "registry")


def form_here(*, node: bool, simulated: bool = False) -> Form:
    """Choose the form of a cluster on this machine.

    Returns
    -------
    Form
        kind where Docker answers, a node on Linux as root, otherwise a simulated node; or what
        ``$CLOISTER_CLUSTER_FORM`` says.

    Raises
    ------
    LocalClusterError
        When the variable has another value, or says ``kind`` where Docker does not answer.
    """
    if simulated:
        return Form.SIMULATED
    if not node:
        return Form.CONTROL_PLANE
    asked = os.environ.get(FORM, "")
    if asked not in {"", Form.NODE, Form.KIND}:
        raise LocalClusterError(f"{FORM} is {asked!r}: set it to node or kind, or leave it out")
    if asked == Form.NODE:
        return Form.NODE
    if docker.answers():
        return Form.KIND
    if asked == Form.KIND:
        raise LocalClusterError(f"{FORM} is kind, and no Docker answers: start it, or unset {FORM}")
    return Form.NODE if os.geteuid() == 0 else Form.SIMULATED


def programs_of(form: Form, kubernetes: str = "") -> tuple[str, ...]:
    """List the programs that a form needs, with the API server of that release of Kubernetes."""
    programs = {
        Form.CONTROL_PLANE: SERVER,
        Form.SIMULATED: (*SERVER, "kube-scheduler", "kwok"),
        Form.NODE: (*SERVER, *NODE),
        Form.KIND: kind.programs(),
    }[form]
    server = _API_SERVER + _suffix(kubernetes)
    return tuple(server if name == _API_SERVER else name for name in programs)


def _suffix(kubernetes: str) -> str:
    return f"-{kubernetes}" if kubernetes else ""


def find(name: str = DEFAULT_NAME) -> Cluster | None:
    """Find a cluster that was started and not removed.

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
    kubernetes: str | None = None,
    audited: bool = False,
    progress: Progress | None = None,
) -> Cluster:
    """Start a cluster, or restart those of its processes that have exited.

    Parameters
    ----------
    name
        Its name; several clusters run side by side.
    node
        Whether Pods are to run; False runs etcd, the API server, the controllers and
        the registry alone. An existing cluster with a node also satisfies False.
    kubernetes
        Minor release of its API server, such as ``1.35``, for a control plane without a node; ""
        is that of all other parts, None is what ``$CLOISTER_KUBERNETES`` says.
    audited
        Whether a new cluster records what the accounts of Cloister request (`Cluster.audit_log`);
        not on kind.
    progress
        Where the way is shown; None shows it on stderr.

    Raises
    ------
    LocalClusterError
        When the cluster cannot be started; the message names the cause and the remedy.
    """
    progress = progress or Progress()
    since = time.monotonic()
    places = layout(name)
    with lock(name):
        known = Record.read(places.record)
        form = _form(known, node=node, simulated=simulated, progress=progress)
        requirements.check_system(form)
        release = _release(known, form, kubernetes)
        programs = _programs(form, release, progress)
        if known is None and places.folder.exists():
            _remove(places, None)
        if form is Form.KIND:
            return Cluster(places, kind.Kind(places, programs, progress).up(known))
        record = known or _new_record(places, form, release, audited=audited)
        started = _bring_up(places, record, programs, progress)
        if started:
            progress.say(
                f"cluster {name} ({form}) is ready after {duration(time.monotonic() - since)}: "
                f"export KUBECONFIG={places.kubeconfig}"
            )
        return Cluster(places, record)


def _form(known: Record | None, *, node: bool, simulated: bool, progress: Progress) -> Form:
    form = form_here(node=node, simulated=simulated)
    if known is None:
        if form is Form.SIMULATED and not simulated:
            progress.say(
                "neither root nor Docker: the node is simulated, and Pods do not really run"
            )
        if form is Form.KIND:
            progress.say(
                f"Docker answers: the cluster runs in it, by kind ({FORM}=node: as processes)"
            )
        if form is Form.NODE:
            why = f"{FORM} is node" if os.environ.get(FORM) else "no Docker answers"
            progress.say(f"{why}: the cluster runs as processes of this machine")
        return form
    # A real node satisfies a request for any kind of node, and for none.
    real = known.form in {Form.NODE, Form.KIND} and node and not simulated
    serves = known.form is form or form is Form.CONTROL_PLANE or real
    if not serves:
        raise LocalClusterError(
            f"cluster {known.name} exists as {known.form}, but {form} is requested: "
            f"take it down first (python -m dev.cluster down --name {known.name}) "
            "or choose another name"
        )
    return known.form


def _release(known: Record | None, form: Form, kubernetes: str | None) -> str:
    """Return the release of the API server; "" = that of all other parts."""
    if known is not None and kubernetes is None and RELEASE not in os.environ:
        return known.kubernetes
    asked = os.environ.get(RELEASE, "") if kubernetes is None else kubernetes
    usual, others = load().modules["kubernetes"].version, load().other_kubernetes
    if asked and usual.startswith(f"{asked}."):
        asked = ""
    if asked and asked not in others:
        releases = ", ".join(sorted([*others, usual.rpartition(".")[0]]))
        raise LocalClusterError(f"no API server of Kubernetes {asked} is built: use {releases}")
    if asked and form is not Form.CONTROL_PLANE:
        if kubernetes is None:
            return ""
        raise LocalClusterError(
            f"an API server of Kubernetes {asked} serves control planes alone, since kubelets may "
            "not be newer: choose a control plane without a node"
        )
    if known is not None and known.kubernetes != asked:
        raise LocalClusterError(
            f"cluster {known.name} exists with Kubernetes {known.kubernetes or usual}, but "
            f"{asked or usual} is requested: take it down first "
            f"(python -m dev.cluster down --name {known.name}) or choose another name"
        )
    return asked


def _programs(form: Form, kubernetes: str, progress: Progress) -> dict[str, Path]:
    real = form is Form.NODE or (form is Form.KIND and kind.makes_node())
    purposes = ["build", "node-build"] if real else ["build"]
    needed = programs_of(form, kubernetes)
    todo = bool(binaries.missing(needed))
    if form is Form.NODE:
        requirements.install_packages(["node"], progress)
    if todo:
        requirements.install_packages(purposes, progress)
    requirements.check_room(form, build=todo, cache=binaries.cache_folder())
    built = binaries.ensure(needed, progress)
    return {name.removesuffix(_suffix(kubernetes)): path for name, path in built.items()}


def _new_record(places: Layout, form: Form, kubernetes: str, *, audited: bool) -> Record:
    with lock(""):
        neighbours = others(places.name)
        taken = {port for other in neighbours for port in other.ports.values()}
        record = Record(name=places.name, form=form, kubernetes=kubernetes, audited=audited)
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
    """Start what does not run; return whether anything was started."""
    places.make()
    identities = Identities(places, record)
    if record.form is Form.NODE:
        requirements.raise_limits(progress)
        _prepare_node(places, record)
    server = [
        *registry(places, record, programs),
        *control_plane(places, record, programs, identities),
    ]
    started = _start(places, server, progress)
    if started:
        with KubeAPI(record.server, places.pki) as api:
            apply_first_objects(record, api)
    if record.form is Form.NODE:
        pause = images.pause_image(programs["pause"])
        repository, _, tag = PAUSE.partition(":")
        images.push(pause, record.registry, repository, tag)
        started |= _start(places, node(places, record, programs, identities), progress)
        if _start(places, [metrics_server(record, programs, identities)], progress):
            started = True
            with KubeAPI(record.server, places.pki) as api:
                register(record, api, identities.ca.certificate)
    elif record.form is Form.SIMULATED:
        started |= _start(places, [kwok(record, programs, identities)], progress)
        with KubeAPI(record.server, places.pki) as api:
            add_node(record, api)
    return started


def _prepare_node(places: Layout, record: Record) -> None:
    run = Processes(places.processes, places.logs)
    if not any(run.is_running(name) for name in ("containerd", "kubelet", "kube-proxy")):
        # After an interrupted run or a reboot: begin from a clean state.
        requirements.clear_node(places, cgroup_root(record.name))
    resolver = any(address.startswith("127.") for address in upstream_resolvers())
    network.set_up(record, resolver=resolver)
    requirements.make_cgroups(cgroup_root(record.name))


def _start(places: Layout, components: Iterable[Component], progress: Progress) -> bool:
    run = Processes(places.processes, places.logs)
    changed = False
    for component in components:
        if start(run, component):
            changed = True
            progress.say(f"{component.name} serves")
    return changed


def down(name: str = DEFAULT_NAME, *, progress: Progress | None = None) -> bool:
    """Stop a cluster and remove everything that belongs to it.

    Parameters
    ----------
    progress
        Where the way is shown; None shows it on stderr.

    Raises
    ------
    LocalClusterError
        When something of it cannot be removed.
    """
    progress = progress or Progress()
    places = layout(name)
    with lock(name):
        if not places.folder.exists():
            return False
        record = Record.read(places.record)
        _remove(places, record)
    progress.say(f"cluster {name} is removed")
    return True


def _remove(places: Layout, record: Record | None) -> None:
    """Remove all of a cluster, even when an interrupted run left no record of it."""
    if record is not None and record.form is Form.KIND:
        kind.down(record)
    if sys.platform.startswith("linux"):
        run = Processes(places.processes, places.logs)
        for component in (*COMPONENTS, *run.names()):
            run.stop(component)
        if os.geteuid() == 0:
            requirements.clear_node(places, cgroup_root(places.name))
        if os.geteuid() == 0 and not requirements.missing_packages(["node"]):
            network.tear_down(places.name)
    requirements.clear_files(places)
