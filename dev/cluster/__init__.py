"""A real Kubernetes on this machine, in one command: ``python -m dev.cluster up``."""

from dev.cluster.lifecycle import DEFAULT_NAME, down, find, up
from dev.cluster.layout import Form
from dev.cluster.progress import Progress
from dev.cluster.cluster import Cluster, KubectlError
from dev.cluster.errors import Trouble

__all__ = [
    "DEFAULT_NAME",
    "Cluster",
    "Form",
    "KubectlError",
    "Progress",
    "Trouble",
    "down",
    "find",
    "up",
]
