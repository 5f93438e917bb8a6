"""The cluster in Docker containers, by kind, where Docker answers.

On Linux as root its node and its registry are images of the same programs that the local cluster
runs, built from the same Go modules, so that nothing is pulled. Elsewhere they are kind's own.
"""

from dev.cluster.kind.cluster import (
    HOSTS,
    Kind,
    cluster_name,
    configuration,
    container,
    down,
    host_address,
    load,
    makes_node,
    pod_registry,
    programs,
    runs,
)

__all__ = [
    "HOSTS",
    "Kind",
    "cluster_name",
    "configuration",
    "container",
    "down",
    "host_address",
    "load",
    "makes_node",
    "pod_registry",
    "programs",
    "runs",
]
