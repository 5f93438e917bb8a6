"""The clusters that tests share: one control plane, one with a real node, one with a simulated one.

Each exists once per session. They are started after collection, when a collected test requests
them: building their programs may exceed a test's timeout. With several workers each requests them,
and the first call does the work. The controlling process stops them after the last test.
``CLOISTER_TEST_CLUSTER`` names them, ``CLOISTER_KEEP_CLUSTER=1`` keeps them for the next session.

Only one test at a time runs an operator on a cluster
(`tests.support.programs.operator.operator_lock`). With ``CLOISTER_OWN_CLUSTERS=1`` each worker has
clusters of its own, so that they need not wait.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from cloister_clients.kube import KubeConfig
from dev import cluster as local
from dev.cluster import kind
from dev.cluster.binaries import ensure
from dev.cluster.kind import docker
from dev.cluster.lifecycle import FORM
from dev.images.errors import ImageError
from dev.images.local import local_images
from tests.support.cluster.accounts import install_roles

__all__ = [
    "administrator",
    "api_cluster",
    "cluster",
    "install_crds",
    "install_mutations",
    "namespace",
    "node_namespace",
    "pytest_collection_finish",
    "pytest_configure",
    "pytest_runtest_logreport",
    "pytest_sessionfinish",
    "session_name",
    "simulated_cluster",
    "unique",
]

ROOT = Path(__file__).parents[3]
"""The checkout."""
SUFFIX = {"api_cluster": "-api", "cluster": "", "simulated_cluster": "-sim"}
"""Fixture -> suffix of its cluster's name."""
MARKS = "CLOISTER_TEST_SESSION"
"""Variable with the session's folder, which records started clusters and failures."""


def unique(prefix: str) -> str:
    """Return a unique name."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def pytest_configure(config: pytest.Config) -> None:
    """Create the session's folder, inherited by workers; name the workers' own clusters.

    On Linux as root the node's parts are processes also where Docker answers: the tests look into
    them, and reach Pods by their addresses.
    """
    if kind.makes_node():
        os.environ.setdefault(FORM, local.Form.NODE)
    if not hasattr(config, "workerinput"):
        os.environ[MARKS] = tempfile.mkdtemp(prefix="cloister-tests-")
    elif os.environ.get("CLOISTER_OWN_CLUSTERS") == "1":
        os.environ["CLOISTER_TEST_CLUSTER"] = (
            f"{session_name()}-{os.environ['PYTEST_XDIST_WORKER']}"
        )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build programs and start clusters for the collected tests, outside of any test's timeout."""
    if session.config.option.collectonly:
        return
    requested = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    marks = [mark for item in session.items for mark in item.iter_markers("programs")]
    programs = {name for mark in marks for name in mark.args}
    try:
        ensure(sorted(programs))
    except local.LocalClusterError as trouble:
        # The test that needs it fails with the same message.
        sys.stderr.write(f"\n{trouble}\n")
    if any(item.get_closest_marker("images") for item in session.items) and not _no_node():
        try:
            local_images(local.Progress())
        except (ImageError, local.LocalClusterError) as trouble:
            # The test that needs them fails with the same message.
            sys.stderr.write(f"\n{trouble}\n")
    for fixture in sorted(requested & SUFFIX.keys()):
        if fixture == "cluster" and _no_node():
            continue
        try:
            _bring_up(fixture)
        except local.LocalClusterError as trouble:
            # The fixture fails with the same message, in the tests that need it.
            sys.stderr.write(f"\n{trouble}\n")


@pytest.fixture(scope="session")
def api_cluster() -> local.Cluster:
    """Provide a control plane without node, with Cloister's CRDs."""
    return _bring_up("api_cluster")


@pytest.fixture(scope="session")
def cluster() -> local.Cluster:
    """Provide a cluster with a real node, with Cloister's CRDs."""
    if reason := _no_node():
        pytest.skip(reason)
    return _bring_up("cluster")


@pytest.fixture(scope="session")
def simulated_cluster() -> local.Cluster:
    """Provide a cluster with simulated nodes, with Cloister's CRDs."""
    return _bring_up("simulated_cluster")


@pytest.fixture
def namespace(api_cluster: local.Cluster) -> str:
    """Provide a namespace of the control plane for one test; it stays until the cluster ends.

    Its deletion would take some two hundred requests of the controller manager: more work than most
    tests are.
    """
    return _namespace(api_cluster)


@pytest.fixture
def node_namespace(cluster: local.Cluster) -> Iterator[str]:
    """Provide a namespace of the cluster with a node for one test; it is deleted with its Pods."""
    name = _namespace(cluster)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false", check=False)


def install_crds(cluster: local.Cluster) -> None:
    """Apply the CRDs and wait until the server serves them; idempotent."""
    folder = ROOT / "crds" / "manifests" / "crds"
    if not folder.is_dir():
        return
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(folder))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", str(folder))


def install_mutations(cluster: local.Cluster, namespace: str = "cloister-system") -> None:
    """Apply the mutating policies where the server has them, for accounts in a namespace."""
    group = ("--api-group=admissionregistration.k8s.io", "--no-headers", "-oname")
    if "mutatingadmissionpolicies" in cluster.kubectl("api-resources", *group):
        text = (ROOT / "crds/manifests/mutations/managed-fields.yaml").read_text(encoding="utf-8")
        arguments = ("apply", "--server-side", "--force-conflicts", "-f", "-")
        cluster.kubectl(*arguments, stdin=text.replace("cloister-system", namespace))


@cache
def administrator(kubeconfig: Path) -> KubeConfig:
    """Read a kubeconfig once for all tests."""
    return KubeConfig.load(kubeconfig)


def _no_node() -> str:
    """Return why no real node can run here; empty = one can."""
    if os.environ.get(FORM) != local.Form.NODE and docker.answers():
        return ""
    if sys.platform != "linux":
        return "a real node needs Linux, or Docker with kind"
    return "" if os.geteuid() == 0 else "a real node needs root on Linux, or Docker with kind"


def _bring_up(fixture: str) -> local.Cluster:
    name = session_name() + SUFFIX[fixture]
    _mark(f"used-{name}")
    simulated = fixture == "simulated_cluster"
    found = local.up(name, node=fixture == "cluster", simulated=simulated)
    done = Path(os.environ[MARKS], f"crds-{name}")
    if not done.exists():
        install_crds(found)
        install_roles(found)
        install_mutations(found)
        done.touch()
    return found


def session_name() -> str:
    """Return the prefix of the names of this session's clusters."""
    return os.environ.get("CLOISTER_TEST_CLUSTER", "test")


def _mark(name: str) -> None:
    Path(os.environ[MARKS], name).touch()


def _namespace(cluster: local.Cluster) -> str:
    name = unique("t")
    cluster.kubectl("create", "namespace", name)
    return name


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record that a test failed, so that the logs are kept, and print it at once."""
    if not report.failed:
        return
    if MARKS in os.environ:
        _mark("failed")
    if "PYTEST_XDIST_WORKER" not in os.environ:
        where = f"{report.nodeid} failed in its {report.when} after {report.duration:.0f} s"
        sys.stderr.write(f"\n{where}\n{report.longreprtext}\n")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop the clusters of this session; after a failure keep the logs of their components."""
    if hasattr(session.config, "workerinput") or MARKS not in os.environ:
        return
    marks = Path(os.environ.pop(MARKS))
    names = {path.name.removeprefix("used-") for path in marks.glob("used-*")}
    for found in filter(None, (local.find(name) for name in sorted(names))):
        if (marks / "failed").exists():
            _keep_logs(found)
        if os.environ.get("CLOISTER_KEEP_CLUSTER") != "1":
            local.down(found.name)
    shutil.rmtree(marks)


def _keep_logs(cluster: local.Cluster) -> None:
    target = Path(tempfile.gettempdir()) / f"cloister-logs-{cluster.name}"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(cluster.processes.logs, target)
    try:
        objects = cluster.kubectl("get", "all,ctr,encl", "-A", "-o", "yaml", check=False)
        (target / "objects.yaml").write_text(objects)
    except (OSError, subprocess.SubprocessError):
        (target / "objects.yaml").write_text("the API server did not respond\n")
    sys.stderr.write(f"\nlogs of cluster {cluster.name}: {target}\n")
