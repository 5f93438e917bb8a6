"""The manifest of an enclave's Pod says nothing that the API server takes for granted."""

import copy
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders.enclave_plans import SETTINGS, WEB, WORKER, build_pod, plan_of
from tests.support.cluster.api_server import ApiServer
from tests.support.cluster.clusters import unique

Steps = tuple[str | int, ...]

KEPT = {"imagePullPolicy"}
"""Said although it is usually the default: of an image with the tag latest it is another one."""


@pytest.fixture
async def server(api_cluster: Any) -> AsyncIterator[ApiServer]:
    """Provide an administrator's way to a server without nodes."""
    server = ApiServer.administrator(Path(api_cluster.kubeconfig))
    yield server
    await server.aclose()


def leaves(node: Any, at: Steps = ()) -> Iterator[Steps]:
    """Yield the way to each value of an object that is no object or list itself."""
    if isinstance(node, dict):
        for name, value in node.items():
            if isinstance(value, dict | list):
                yield from leaves(value, (*at, name))
            else:
                yield (*at, name)
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from leaves(value, (*at, number))


def value_at(node: Any, steps: Steps) -> Any:
    """Return what is at the end of a way; None = nothing."""
    for step in steps:
        try:
            node = node[step]
        except (KeyError, IndexError):
            return None
    return node


async def test_each_part_of_the_manifest_is_needed(server: ApiServer) -> None:
    space = unique("lean")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}
    await server.apply(namespace, f"/api/v1/namespaces/{space}")
    # The controller manager would make it some moments later.
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    await server.apply(account, f"/api/v1/namespaces/{space}/serviceaccounts/default")
    pod = build_pod(plan_of(WEB, WORKER), SETTINGS)
    pod["metadata"]["namespace"] = space
    place = f"/api/v1/namespaces/{space}/pods"
    whole = await server.post(place, pod, dryRun="All")
    assert whole.accepted, whole.message
    idle = []
    for steps in leaves(pod["spec"], ("spec",)):
        without = copy.deepcopy(pod)
        del value_at(without, steps[:-1])[steps[-1]]
        found = await server.post(place, without, dryRun="All")
        same = found.accepted and value_at(found.body, steps) == value_at(whole.body, steps)
        if same and steps[-1] not in KEPT:
            idle.append(steps)
    assert idle == []
