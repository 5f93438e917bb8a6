"""The demo works as the README describes; each step is checked by the demo itself."""

import os
import subprocess
import sys

import pytest

from dev.cluster import Cluster
from tests.support.cluster.accounts import install_roles
from tests.support.cluster.clusters import ROOT
from tests.support.programs.operator import operator_lock

pytestmark = [pytest.mark.images, pytest.mark.programs("helm")]


@pytest.mark.timeout(560)
def test_the_demo_passes_every_check_of_its_own(cluster: Cluster) -> None:
    with operator_lock(cluster.name):
        done = subprocess.run(
            [sys.executable, "-m", "dev.demo", "up", "--check", "--keep-cluster"],
            cwd=ROOT,
            env={**os.environ, "CLOISTER_DEMO_CLUSTER": cluster.name},
            capture_output=True,
            text=True,
            check=False,
            timeout=500,
        )
        # They went with the release.
        install_roles(cluster)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every check passed." in done.stdout
    left = cluster.kubectl("get", "ctr,encl,org,chost", "-A", "-oname")
    assert "acme" not in left
    assert "laptop" not in left
