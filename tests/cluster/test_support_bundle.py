"""``cloister support-bundle`` reads logs and metrics of our programs through a real kubelet."""

import json
import tarfile
from pathlib import Path

import pytest

from dev import cluster as local
from dev.cluster.images import busybox_image, push
from tests.support.programs.facade import run_command

pytestmark = pytest.mark.node

SERVE = """
echo started with password=by-its-form; echo signed in with planted-secret-value
mkdir -p /tmp/w; echo 'cloister_build_info 1' > /tmp/w/metrics; exec httpd -f -p 9090 -h /tmp/w
"""


def test_logs_and_metrics_of_our_programs_are_there_without_secrets(
    cluster: local.Cluster, node_namespace: str, tmp_path: Path
) -> None:
    program = {
        "name": "api",
        "image": push(busybox_image(), cluster.registry, "tests/busybox"),
        "command": ["sh", "-c", SERVE],
        "ports": [{"name": "metrics", "containerPort": 9090}],
        # Ready once it has said all, and its metrics are served.
        "readinessProbe": {"httpGet": {"path": "/metrics", "port": 9090}, "periodSeconds": 1},
    }
    ours = {"app.kubernetes.io/part-of": "cloister"}
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [program]},
        }
        for name, labels in (("ours", ours), ("other", {}))
    ]
    place = ("-n", node_namespace)
    planted = "--from-literal=value=planted-secret-value"
    cluster.kubectl("create", "secret", "generic", "planted", planted, *place)
    cluster.kubectl(
        "apply",
        "-f",
        "-",
        *place,
        stdin=json.dumps({"kind": "List", "apiVersion": "v1", "items": pods}),
    )
    cluster.kubectl(
        "wait", "--for=condition=Ready", "pod/ours", "pod/other", "--timeout=90s", *place
    )
    path = tmp_path / "bundle.tar.gz"
    where = ("--kubeconfig", str(cluster.kubeconfig), "--namespace", node_namespace)
    run_command("support-bundle", *where, "--output", str(path))
    with tarfile.open(path) as archive:
        files = {}
        for member in archive.getmembers():
            content = archive.extractfile(member)
            assert content is not None
            files[member.name] = content.read().decode()
    lines = files["bundle/logs/ours-api.log"].splitlines()
    assert lines == ["started with password=[redacted]", "signed in with [redacted]"]
    assert files["bundle/metrics/ours-api.txt"] == "cloister_build_info 1\n"
    assert not [name for name in files if "other" in name]
    assert "planted-secret-value" not in "".join(files.values())
