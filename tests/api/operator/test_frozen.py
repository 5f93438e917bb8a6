"""The operator suspended over two restarts of the API server, with a deletion in between.

It has a control plane of its own, since it restarts the API server.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev import cluster as local
from tests.support.cluster.clusters import session_name
from tests.support.programs.operator import Installation, file_text
from tests.support.waiting import until_sync

IMAGE = "registry.invalid/web@sha256:" + "ab" * 32


@pytest.fixture
def own_cluster() -> Iterator[local.Cluster]:
    name = f"{session_name()}-frozen"
    local.down(name)
    try:
        yield local.up(name, node=False)
    finally:
        local.down(name)


def restart_api_server(cluster: local.Cluster) -> None:
    pid = cluster.components["kube-apiserver"]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until_sync(
        lambda: cluster.components["kube-apiserver"] != pid, within=60, what="the server's end"
    )
    local.up(cluster.name, node=False)


def test_a_deletion_while_suspended_is_noticed(own_cluster: local.Cluster, tmp_path: Path) -> None:
    installation = Installation(
        own_cluster,
        tmp_path,
        {
            "claimAgeSeconds": 1,
            "lease": {"durationSeconds": 600, "renewSeconds": 590, "retrySeconds": 2},
        },
    )
    try:
        installation.prepare()
        installation.create_organization()
        installation.repository("acme/web").release("v1", file_text(IMAGE))
        operator = installation.operator()
        operator.wait_until_it_leads()
        for name in ("one", "two"):
            installation.create_container(name, repo="acme/web", tag="v1")
            installation.wait_for(name, "Reconciling", reason="RegistryUnavailable")
        operator.send(signal.SIGSTOP)
        restart_api_server(own_cluster)
        installation.kubectl("delete", "ctr", "one", "-n", installation.namespace)
        restart_api_server(own_cluster)
        operator.send(signal.SIGCONT)
        gone = f"Container {installation.namespace}/one"

        def noticed() -> bool:
            assert operator.running, operator.text[-3000:]
            counts = installation.objects("organizations.cloister.dev", every=True)[0]
            return bool(counts["status"]["counts"]["containers"] == 1)

        until_sync(noticed, within=120, every=0.5, what=f"the end of {gone}")
        installation.create_container("three", repo="acme/web", tag="v1")
        installation.wait_for("three", "Reconciling", reason="RegistryUnavailable")
    finally:
        installation.end()
