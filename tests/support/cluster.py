"""The clusters that tests share: one control plane, one with a real node, each once per session.

With several workers each asks for the cluster, and the first starts it; the controlling process
ends it after the last test. ``CLOISTER_TEST_CLUSTER`` names it, ``CLOISTER_KEEP_CLUSTER=1`` keeps
it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev import cluster as local
from dev.cluster.requirements import docker_answers

__all__ = [
    "api_cluster",
    "cluster",
    "install_crds",
    "namespace",
    "node_namespace",
    "pytest_sessionfinish",
    "unique",
]

ROOT = Path(__file__).parents[2]
"""The checkout."""


def unique(prefix: str) -> str:
    """Answer a name that no other test has."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def api_cluster() -> local.Cluster:
    """Give a control plane without node, with Cloister's CRDs."""
    found = local.up(_name("-api"), node=False)
    install_crds(found)
    return found


@pytest.fixture(scope="session")
def cluster() -> local.Cluster:
    """Give a cluster with a real node, with Cloister's CRDs."""
    if os.geteuid() != 0 and not docker_answers():
        pytest.skip("a real node needs root on Linux, or Docker")
    if sys.platform != "linux":
        pytest.skip("a real node needs Linux")
    found = local.up(_name(""))
    install_crds(found)
    return found


@pytest.fixture
def namespace(api_cluster: local.Cluster) -> Iterator[str]:
    """Give a namespace of the control plane for one test."""
    yield from _namespace(api_cluster)


@pytest.fixture
def node_namespace(cluster: local.Cluster) -> Iterator[str]:
    """Give a namespace of the cluster with a node for one test."""
    yield from _namespace(cluster)


def install_crds(cluster: local.Cluster) -> None:
    """Apply the CRDs and wait until the server serves them; harmless when it does."""
    folder = ROOT / "crds" / "manifests" / "crds"
    if not folder.is_dir():
        return
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(folder))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", str(folder))


def _name(suffix: str) -> str:
    return os.environ.get("CLOISTER_TEST_CLUSTER", "test") + suffix


def _namespace(cluster: local.Cluster) -> Iterator[str]:
    name = unique("t")
    cluster.kubectl("create", "namespace", name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false", check=False)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """End the clusters of this session; after a failure keep the logs of their components."""
    if hasattr(session.config, "workerinput"):
        return
    for suffix in ("-api", ""):
        found = local.find(_name(suffix))
        if found is None:
            continue
        if exitstatus not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
            _keep_logs(found)
        if os.environ.get("CLOISTER_KEEP_CLUSTER") != "1":
            local.down(found.name)


def _keep_logs(cluster: local.Cluster) -> None:
    target = Path(tempfile.gettempdir()) / f"cloister-logs-{cluster.name}"
    shutil.copytree(cluster.processes.logs, target, dirs_exist_ok=True)
    try:
        objects = cluster.kubectl("get", "all,ctr,encl", "-A", "-o", "yaml", check=False)
        (target / "objects.yaml").write_text(objects)
    except (OSError, subprocess.SubprocessError):
        (target / "objects.yaml").write_text("the API server did not answer\n")
    sys.stderr.write(f"\nlogs of cluster {cluster.name}: {target}\n")
