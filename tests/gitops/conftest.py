"""Cloister on the session's control plane, and the tool that follows a repository of manifests."""

from collections.abc import Iterator

import pytest

from dev.cluster import Cluster
from tests.support.gitops.place import Place, place_on


@pytest.fixture(scope="module")
def place(api_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place_on(api_cluster, tmp_path_factory.mktemp("cloister")) as found:
        yield found
