"""The operator killed at random moments of a create on a real node: the create succeeds."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloister_crds.kinds.container import ContainerPhase
from dev.cluster import Cluster
from tests.support.faults.crashing_operators import QUICK_LEASE
from tests.support.programs.operator import Installation, OperatorProcess, operator_lock
from tests.support.programs.web_service import PageServices, page_file
from tests.support.waiting import until_sync

pytestmark = pytest.mark.node


@pytest.fixture
def pages(cluster: Cluster) -> PageServices:
    return PageServices(cluster)


@pytest.fixture
def installation(cluster: Cluster, pages: PageServices, tmp_path: Path) -> Iterator[Installation]:
    with operator_lock(cluster.name):
        settings = pages.settings | {"claimAgeSeconds": 1, "lease": QUICK_LEASE}
        installed = Installation(cluster, tmp_path, settings)
        try:
            installed.prepare()
            installed.create_organization()
            installed.repository("acme/web").release("v1.0.0", page_file(pages.web, "one"))
            yield installed
        finally:
            installed.end()


def wait_until_it_is_at(
    step: str, process: OperatorProcess, installation: Installation, *, every: float
) -> None:
    """Wait until the log names a step, or the Container is ready."""

    def reached() -> bool:
        container = installation.container("web")
        assert container is not None
        return container.status.phase is ContainerPhase.READY or step in process.text

    until_sync(reached, every=every, what=step)


@pytest.mark.lifecycle("killed-in-create")
def test_an_operator_killed_at_random_moments_of_a_create(
    installation: Installation, pages: PageServices
) -> None:
    chance = random.Random(7)
    steps = ("deploying", "CreateEnclave", "Pending", "Started", "RouteTo")
    installation.create_container("web", repo="acme/web", tag="v1.0.0")
    for step in chance.sample(steps, 3):
        process = installation.operator()
        wait_until_it_is_at(step, process, installation, every=chance.uniform(0.01, 0.2))
        installation.kill_operator()
    installation.operator().wait_until_it_leads()
    installation.wait_for("web", "Ready", reason="Serving")
    assert pages.await_page(installation, "web").body == "one\n"
    for kind in ("enclaves.cloister.dev", "pods", "services", "deployments.cloister.dev"):
        assert len(installation.objects(kind)) == 1, kind
