"""The demo does what the README says, each step checked by the demo itself."""

import os
import subprocess
import sys

import pytest

from dev.cluster import Cluster
from tests.support.cluster.clusters import ROOT
from tests.support.programs.operator import operator_lock


@pytest.mark.timeout(560)
def test_every_step_of_the_demo_does_what_it_should(cluster: Cluster) -> None:
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
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every step did what it should." in done.stdout
    left = cluster.kubectl("get", "ctr,encl,org,chost", "-A", "-oname")
    assert "acme" not in left
    assert "laptop" not in left
