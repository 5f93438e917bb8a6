"""A client of the real API server for each test."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from cloister_clients.kube import KubeClient, KubeConfig

if TYPE_CHECKING:
    from dev.cluster import Cluster


@pytest.fixture
async def client(api_cluster: "Cluster") -> AsyncIterator[KubeClient]:
    config = KubeConfig.load(api_cluster.kubeconfig)
    async with KubeClient(config, field_manager="tests", user_agent="cloister-tests") as kube:
        yield kube
