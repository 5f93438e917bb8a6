"""A real Kubernetes on this machine in one command, and the library that the demo,
the tests and the benchmarks bring it up with.
"""

from dev.cluster.errors import ClusterError
from dev.cluster.images import Image, busybox_image, folder_files, push, shim_image
from dev.cluster.progress import Progress
from dev.cluster.running import Cluster, down, find, up
from dev.cluster.state import Form, names

__all__ = [
    "Cluster",
    "ClusterError",
    "Form",
    "Image",
    "Progress",
    "busybox_image",
    "down",
    "find",
    "folder_files",
    "names",
    "push",
    "shim_image",
    "up",
]
