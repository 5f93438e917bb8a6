"""An installation on an API server without a node: nothing but the operator acts on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.cluster import Cluster
from tests.support.operator import Installation, turn


@pytest.fixture
def installation(api_cluster: Cluster, tmp_path: Path) -> Iterator[Installation]:
    with turn(api_cluster.name):
        installed = Installation(api_cluster, tmp_path, {"claimAgeSeconds": 1})
        try:
            installed.prepare()
            installed.create_organization()
            yield installed
        finally:
            installed.end()
