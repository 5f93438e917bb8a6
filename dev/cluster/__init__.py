"""A real Kubernetes cluster on this machine, in one command: ``python -m dev.cluster up``."""

from dev.cluster.cluster import Cluster, KubectlError
from dev.cluster.layout import DEFAULT_NAME, Form, LocalClusterError
from dev.cluster.lifecycle import down, find, up
from dev.cluster.processes import Progress

__all__ = [
    "DEFAULT_NAME",
    "Cluster",
    "Form",
    "KubectlError",
    "LocalClusterError",
    "Progress",
    "down",
    "find",
    "up",
]
