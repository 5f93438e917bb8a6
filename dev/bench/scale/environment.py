"""The environment: a control plane, simulated nodes, and an installation for many Containers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cloister_clients.kube import KubeClient, KubeConfig
from cloister_clients.kube.kinds import NAMESPACE, NODE, KindRef
from cloister_clients.kube.kinds import of as kind_of
from cloister_crds.kinds import Host, HostnameClaim, Organization
from dev import cluster as local
from dev.bench.scale.measurements import AuditLog
from dev.cluster.images import Image, push
from dev.cluster.node import ANNOTATION
from tests.support.cluster.clusters import install_mutations
from tests.support.programs.operator import Installation, file_text, manifest

CLAIM: Final = kind_of(HostnameClaim)
HOST: Final = kind_of(Host)
ORGANIZATION: Final = kind_of(Organization)

REPO: Final = "bench/web"
"""The repository of all Containers."""
TAG: Final = "v1"
"""Its only release."""
_PER_NODE: Final = 100
_ABREAST: Final = 32
"""Concurrent requests when many objects are created."""
_LIMIT: Final = 100_000


@dataclass(slots=True)
class BenchEnvironment:
    """The environment of one run."""

    cluster: local.Cluster
    """The cluster."""
    client: KubeClient
    """Client of the cluster's administrator, which is not measured."""
    installation: Installation
    """Settings, repository and operators."""
    namespaces: tuple[str, ...]
    """Namespaces of the Organizations."""
    host: str
    """The Host of all Containers."""

    @property
    def audit(self) -> AuditLog:
        """The API server's audit log."""
        return AuditLog(self.cluster.layout.audit_log)

    def namespace_of(self, number: int) -> str:
        """Return the namespace of an object; objects are spread evenly."""
        return self.namespaces[number % len(self.namespaces)]

    def pid(self, component: str) -> int:
        """Return the process id of a component of the cluster.

        Raises
        ------
        local.Trouble
            When it does not run.
        """
        found = self.cluster.components.get(component)
        if found is None:
            raise local.LocalClusterError(
                f"{component} of cluster {self.cluster.name} does not run"
            )
        return found


async def create_all(client: KubeClient, objects: Iterator[tuple[KindRef, dict[str, Any]]]) -> None:
    """Create objects in order, with concurrent requests.

    Raises
    ------
    KubeError
        When the server refuses one of them.
    """

    async def work() -> None:
        for ref, body in objects:
            await client.create(ref, body)

    await asyncio.gather(*(work() for _ in range(_ABREAST)))


@contextlib.asynccontextmanager
async def open_environment(
    cluster: local.Cluster, folder: Path, *, count: int, per_organization: int
) -> AsyncIterator[BenchEnvironment]:
    """Prepare everything but the Containers; stop the operators at the end."""
    installation = Installation(cluster, folder)
    installation.prepare()
    install_mutations(cluster, installation.system)
    image = push(Image(files={"/x": b"x"}, entrypoint=("/x",)), cluster.registry, "bench/web")
    installation.repository(REPO).release(TAG, file_text(image))
    config = KubeConfig.from_file(cluster.kubeconfig)
    async with KubeClient(config, field_manager="bench", user_agent="cloister-bench") as client:
        host = installation.slug
        slugs = [f"{host}-{number}" for number in range(-(-count // per_organization))]
        namespaces = tuple(f"org-{slug}" for slug in slugs)
        environment = BenchEnvironment(cluster, client, installation, namespaces, host)
        await create_all(client, _surroundings(count, host, slugs))
        try:
            yield environment
        finally:
            for process in installation.processes:
                process.end()


async def clear(environment: BenchEnvironment) -> None:
    """Stop the operators and delete all created objects, so that the cluster can be reused."""
    for process in environment.installation.processes:
        process.end()
    client = environment.client
    claims = [
        (CLAIM, each["metadata"]["name"])
        for each in (await client.list(CLAIM)).items
        if each["spec"]["holder"]["namespace"] in environment.namespaces
    ]
    nodes = [
        (NODE, each["metadata"]["name"])
        for each in (await client.list(NODE)).items
        if each["metadata"]["name"].startswith(f"{environment.host}-")
    ]
    organizations = [(ORGANIZATION, each.removeprefix("org-")) for each in environment.namespaces]
    namespaces = [(NAMESPACE, each) for each in environment.namespaces]
    for ref, name in (*organizations, (HOST, environment.host), *namespaces, *claims, *nodes):
        await client.delete(ref, name)


def _surroundings(
    count: int, host: str, slugs: list[str]
) -> Iterator[tuple[KindRef, dict[str, Any]]]:
    """Yield nodes, the Host, and the Organizations with their namespaces."""
    for number in range(count // _PER_NODE + 1):
        yield NODE, _node(f"{host}-{number}")
    spec = {
        "networkIsolation": "Container",
        "overcommit": {"cpuPercent": 1, "memoryPercent": 1},
    }
    yield HOST, manifest("Host", host, spec)
    for slug in slugs:
        labels = {"cloister.dev/organization": slug}
        yield NAMESPACE, {"metadata": {"name": f"org-{slug}", "labels": labels}}
        organization = {
            "namespace": f"org-{slug}",
            "billing": {"containerSubscription": True},
            "entitlements": {"hostSelection": True},
            "limits": {"containers": _LIMIT},
        }
        yield ORGANIZATION, manifest("Organization", slug, organization)


def _node(name: str) -> dict[str, Any]:
    """Build a node that kwok simulates."""
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    return {"metadata": {"name": name, "annotations": {ANNOTATION: "fake"}, "labels": labels}}
