"""A client of the real API server and a namespace of its own for each test."""

import uuid
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from cloister_clients.kube import KubeClient, KubeConfig
from cloister_clients.kube.kinds import NAMESPACE

if TYPE_CHECKING:
    from dev.cluster import Cluster


@pytest.fixture
async def client(api_cluster: "Cluster") -> AsyncIterator[KubeClient]:
    config = KubeConfig.load(api_cluster.kubeconfig)
    async with KubeClient(config, field_manager="tests", user_agent="cloister-tests") as kube:
        yield kube


@pytest.fixture
async def namespace(client: KubeClient) -> AsyncIterator[str]:
    name = f"t-{uuid.uuid4().hex[:12]}"
    await client.create(NAMESPACE, {"metadata": {"name": name}})
    yield name
    await client.delete(NAMESPACE, name)
