"""A real node with an installation, and bare Pods beside its enclaves, for benchmarks of one Pod.

A bare Pod runs the image and the program of the enclave's container, with the same check as its
readiness probe; of native side-cars it has as many as wanted, which do nothing.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cloister_clients.kube.reflector import Reflector
from dev import cluster as local
from tests.support.cluster.accounts import install_roles
from tests.support.cluster.clusters import install_crds, install_mutations
from tests.support.programs.operator import Installation, manifest
from tests.support.programs.web_service import HEALTHCHECK, PageServices, page_file

Object = dict[str, Any]

REPO: Final = "bench/web"
"""The repository of all Containers."""
TAG: Final = "v1"
"""Its only release."""
_PAGE: Final = (
    "mkdir -p /tmp/w && echo bench > /tmp/w/index.html && exec httpd -f -p 8080 -h /tmp/w"
)
_IDLE: Final = "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done"


@dataclass(frozen=True, slots=True)
class EnclaveBench:
    """The node and what runs on it."""

    cluster: local.Cluster
    """The cluster."""
    installation: Installation
    """Settings, the Organization and the operator."""
    pages: PageServices
    """The images."""

    @property
    def namespace(self) -> str:
        """Namespace of Containers and bare Pods."""
        return self.installation.namespace

    def pid(self, component: str) -> int:
        """Return the process id of a component of the cluster.

        Raises
        ------
        RuntimeError
            When it does not run.
        """
        found = self.cluster.components.get(component)
        if found is None:
            raise RuntimeError(f"{component} does not run")
        return found

    def container(self, name: str) -> Object:
        """Return the manifest of a Container."""
        spec = {"repo": REPO, "tag": TAG, "host": self.installation.host}
        return manifest("Container", name, spec, self.namespace)

    def bare_pod(self, name: str, *, side_cars: int = 0, volume: bool = False) -> Object:
        """Return the manifest of a Pod without anything of ours.

        Parameters
        ----------
        name
            Its name, also the value of its label ``app``.
        volume
            Whether it has an empty directory: the kubelet looks every 0.3 s whether volumes are
            mounted, and starts the Pod then.
        """
        program: Object = {
            "name": "web",
            "image": self.pages.web,
            "command": ["sh", "-c", _PAGE],
            "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
        }
        if volume:
            program["volumeMounts"] = [{"name": "empty", "mountPath": "/empty"}]
        beside = [
            {
                "name": f"beside-{number}",
                "image": self.pages.web,
                "command": ["sh", "-c", _IDLE],
                "restartPolicy": "Always",
            }
            for number in range(side_cars)
        ]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace, "labels": {"app": name}},
            "spec": {
                "automountServiceAccountToken": False,
                "containers": [program],
                "enableServiceLinks": False,
                "hostUsers": False,
                "initContainers": beside,
                "terminationGracePeriodSeconds": 1,
                "volumes": [{"name": "empty", "emptyDir": {}}] if volume else [],
            },
        }

    def service(self, name: str) -> Object:
        """Return the manifest of the Service of a bare Pod."""
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}]},
        }


@contextlib.contextmanager
def open_bench(name: str, interval: str) -> Iterator[EnclaveBench]:
    """Start a cluster with a real node and an operator that leads; stop both at the end.

    Parameters
    ----------
    interval
        Interval of the health check of the containers, such as ``30s``.
    """
    local.down(name)
    cluster = local.up(name, node=True)
    try:
        install_crds(cluster)
        install_roles(cluster)
        with tempfile.TemporaryDirectory() as folder:
            pages = PageServices(cluster)
            installation = Installation(cluster, Path(folder), pages.settings)
            try:
                installation.prepare()
                install_mutations(cluster, installation.system)
                installation.create_organization()
                check = {**HEALTHCHECK, "interval": interval, "retries": 3}
                text = page_file(pages.web, "bench", healthcheck=check)
                installation.repository(REPO).release(TAG, text)
                installation.operator().wait_until_it_leads()
                yield EnclaveBench(cluster, installation, pages)
            finally:
                installation.end()
    finally:
        local.down(name)


async def synced(reflector: Reflector[None]) -> None:
    """Wait for the first list of a reflector.

    Raises
    ------
    RuntimeError
        When it takes too long.
    """
    if not await reflector.until(lambda: reflector.ready, within=30):
        raise RuntimeError(f"{reflector.kind} cannot be listed: {reflector.failure}")
