"""An installation on an API server without a node: only the operator acts on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.cluster import Cluster
from dev.cluster.images import Image, push
from tests.support.faults.crashing_operators import (
    LeaderSuccession,
    ProxiedInstallation,
    proxied_installation,
)
from tests.support.lifecycles.steps import ContainerLifecycles
from tests.support.programs.operator import Installation, file_text, operator_lock


@pytest.fixture
def installation(api_cluster: Cluster, tmp_path: Path) -> Iterator[Installation]:
    with operator_lock(api_cluster.name):
        installed = Installation(api_cluster, tmp_path, {"claimAgeSeconds": 1})
        try:
            installed.prepare()
            installed.create_organization()
            yield installed
        finally:
            installed.end()


@pytest.fixture(scope="module")
def operated(
    api_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Provide an installation whose operator runs, with the release v1 of acme/web."""
    with operator_lock(api_cluster.name):
        folder = tmp_path_factory.mktemp("installation")
        installed = Installation(api_cluster, folder, {"claimAgeSeconds": 1})
        try:
            installed.prepare()
            installed.create_organization()
            image = push(Image(files={"/x": b"x"}, entrypoint=("/x",)), api_cluster.registry, "x")
            installed.repository("acme/web").release("v1", file_text(image))
            installed.operator().wait_until_it_leads()
            yield installed
        finally:
            installed.end()


@pytest.fixture
def behind_proxy(api_cluster: Cluster, tmp_path: Path) -> Iterator[ProxiedInstallation]:
    with proxied_installation(api_cluster, tmp_path) as found:
        yield found


@pytest.fixture
def succession(behind_proxy: ProxiedInstallation) -> LeaderSuccession:
    found = LeaderSuccession(behind_proxy.installation, behind_proxy.proxy, behind_proxy.direct)
    found.start()
    return found


@pytest.fixture
def image_of_life(api_cluster: Cluster) -> str:
    return push(Image(files={"/x": b"x"}, entrypoint=("/x",)), api_cluster.registry, "tests/x")


@pytest.fixture
def lifecycles(behind_proxy: ProxiedInstallation, image_of_life: str) -> ContainerLifecycles:
    found = ContainerLifecycles(
        behind_proxy.installation, behind_proxy.proxy, behind_proxy.direct, image_of_life
    )
    found.prepare()
    return found
