"""A real Kubernetes on this machine, in one command: ``python -m dev.cluster up``."""

from dev.cluster.cluster import DEFAULT_NAME, Cluster, down, find, up
from dev.cluster.trouble import Trouble

__all__ = ["DEFAULT_NAME", "Cluster", "Trouble", "down", "find", "up"]
