"""Cloister on a control plane with simulated nodes and gateway, and a repository of manifests.

The operator and the API are real and have their own accounts; the admission policies are in force.
Nothing of a tenant is there yet but its Organization: what the pages of docs/gitops say is the
test's to apply.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from cloister_clients.kube import KindRef
from cloister_clients.kube.kinds import POD
from cloister_crds.kinds import Container
from cloister_crds.names import CONTAINER_LABEL
from dev.cluster import Cluster
from dev.cluster.images import Image, push
from tests.support.cluster.admission_policies import policy_documents
from tests.support.cluster.direct_client import DirectClient
from tests.support.cluster.gateway_crds import install_gateway_crds
from tests.support.programs.operator import Installation, condition_of, file_text, operator_lock
from tests.support.programs.operator_facade import facade_of
from tests.support.servers.git import GitServer, Repository, git_server
from tests.support.stand_ins.gateway_controller import SimulatedGateway
from tests.support.stand_ins.nodes import READY, PodOutcome, SimulatedNodes
from tests.support.waiting import until_sync

__all__ = ["ORGANIZATION", "REPO", "TAGS", "Place", "place_on", "reason_of"]

ORGANIZATION = "acme"
"""Slug of the organization of the pages."""
REPO = "acme/web"
"""Repository of the pages' Container."""
TAGS = ("v1.0.0", "v1.1.0", "v1.2.0")
"""Its releases."""
_BRANCH = "main"


@dataclass
class Place:
    """Everything that a GitOps tool finds."""

    installation: Installation
    """Operator, organization and sources."""
    direct: DirectClient
    """The API server, as an administrator."""
    git: GitServer
    """The server of the repository of manifests."""
    rest: httpx.Client
    """The Admin API, with a key of the organization."""
    gateway: SimulatedGateway
    """The gateway."""
    manifests: Repository
    """The repository that the GitOps tool follows."""
    waiting: set[str]
    """Containers whose new Pods do not start."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Files of the last commit."""

    @property
    def namespace(self) -> str:
        """Namespace of the organization."""
        return self.installation.namespace

    def commit(self, **bodies: dict[str, Any]) -> str:
        """Commit objects as the only files of ``containers``, and return the commit's id."""
        return self.commit_files({f"containers/{name}.yaml": body for name, body in bodies.items()})

    def commit_files(self, bodies: dict[str, dict[str, Any]]) -> str:
        """Commit objects by path, and return the commit's id."""
        files = {path: yaml.safe_dump(body).encode() for path, body in bodies.items()}
        return self.manifests.advance(_BRANCH, files)

    def container(self, name: str) -> Container | None:
        """Read a Container; None = there is none."""
        return self.installation.container(name)

    def wait(self, name: str, fits: Callable[[Container], bool], what: str) -> Container:
        """Wait until a Container is in a state, with the present generation of its spec."""

        def found() -> Container | None:
            container = self.container(name)
            assert container is not None
            seen = container.status.observed_generation == container.metadata.generation
            assert seen, container.status.wire()
            assert fits(container), container.status.wire()
            return container

        try:
            container = until_sync(found, within=90, what=f"{name}: {what}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.installation.logs()}") from error
        assert container is not None
        return container

    def lose_pods(self, name: str) -> None:
        """Delete the Pods of a Container, as a node that goes away does."""
        for pod in self.direct.list_objects(POD, self.namespace):
            if container_of(pod) == name:
                self.direct.delete(POD, pod["metadata"]["name"], self.namespace, grace=0)

    def get(self, ref: KindRef, name: str, namespace: str | None = None) -> dict[str, Any]:
        """Read an object that must exist."""
        body = self.direct.get(ref, name, namespace or self.namespace)
        assert body is not None, f"there is no {ref.kind} {name}"
        return body

    def container_id(self, name: str) -> str:
        """Return the id of a container in the Admin API."""
        (found,) = [
            each for each in self.rest.get("/api/containers").json() if each["name"] == name
        ]
        return str(found["id"])


def reason_of(found: Container, kind: str) -> str:
    """Return the reason of a condition that is True; empty = it is not."""
    condition = condition_of(found, kind)
    return condition["reason"] if condition and condition["status"] == "True" else ""


def container_of(pod: dict[str, Any]) -> str:
    """Return the name of the Container of a Pod."""
    labels: dict[str, str] = pod["metadata"].get("labels", {})
    return labels.get(CONTAINER_LABEL, "")


@contextlib.contextmanager
def place_on(cluster: Cluster, folder: Path) -> Iterator[Place]:
    """Install Cloister for the organization of the pages, until the block ends."""
    settings = {"claimAgeSeconds": 0, "gateway": {"name": "public"}, "followIntervalSeconds": 10}
    waiting: set[str] = set()

    def outcome(pod: dict[str, Any]) -> PodOutcome:
        return PodOutcome(starts=False) if container_of(pod) in waiting else READY

    with contextlib.ExitStack() as stack:
        stack.enter_context(operator_lock(cluster.name))
        installed = Installation(cluster, folder, settings, slug=ORGANIZATION)
        stack.callback(installed.end)
        direct = DirectClient(cluster.kubeconfig)
        stack.callback(direct.close)
        # Admission policies let the cluster's own components alone write the status of Pods.
        node = DirectClient(
            cluster.kubeconfig, user="system:kube-scheduler", groups="system:masters"
        )
        stack.callback(node.close)
        installed.prepare()
        install_gateway_crds(cluster)
        policies = yaml.safe_dump_all(policy_documents()).replace(
            "cloister-system", installed.system
        )
        installed.kubectl("apply", "--server-side", "-f", "-", stdin=policies)
        stack.callback(installed.kubectl, "delete", "--ignore-not-found", "-f", "-", stdin=policies)
        installed.create_organization(host={"default": True})
        nodes = SimulatedNodes(node, outcome=outcome)
        nodes.start()
        stack.callback(nodes.stop)
        gateway = SimulatedGateway(direct, installed.system)
        gateway.start()
        stack.callback(gateway.stop)
        image = push(Image(files={"/x": b"x"}, entrypoint=("/x",)), cluster.registry, "tests/x")
        releases = installed.repository(REPO)
        for number, tag in enumerate(TAGS):
            file = file_text(image, command=(f"/{tag}",))
            releases.release(tag, file, when=1_700_000_000 + number)
        manifests = installed.repositories.create("acme/deploy", f"--initial-branch={_BRANCH}")
        installed.operator().wait_until_it_leads()
        git = stack.enter_context(git_server(installed.repositories.path))
        rest = stack.enter_context(facade_of(installed))
        yield Place(installed, direct, git, rest, gateway, manifests, waiting)
