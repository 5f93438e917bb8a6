"""An organization whose registry keeps the operator waiting makes nobody else wait.

There is no node: `tests.support.stand_ins.pod_status` writes the status of Pods as a kubelet would.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from dev.cluster import Cluster
from dev.cluster.images import Image, push
from tests.support.programs.operator import Installation, file_text, operator_lock
from tests.support.stand_ins.pod_status import run_pod
from tests.support.stand_ins.slow_registry import SlowRegistry, slow_registry
from tests.support.waiting import until_sync

CONTAINERS = 10
IMAGES = 64
MARGIN = 8.0
"""Seconds that another organization may add to a rollout on a busy machine: who waits for a lookup
at the slow registry waits longer, fourteen seconds for each byte."""


@pytest.fixture
def slow() -> Iterator[SlowRegistry]:
    with slow_registry() as running:
        yield running


@pytest.fixture
def attacked(api_cluster: Cluster, tmp_path: Path, slow: SlowRegistry) -> Iterator[Installation]:
    hosts = [api_cluster.registry, slow.host]
    settings = {"registry": {"plain_http": hosts, "allow_private": hosts}}
    with operator_lock(api_cluster.name):
        installed = Installation(api_cluster, tmp_path, settings)
        try:
            installed.prepare()
            installed.create_organization()
            installed.operator().wait_until_it_leads()
            yield installed
        finally:
            installed.end()


def many_images(registry: str, release: int) -> bytes:
    """Write a file whose images are all of one registry, and of this release alone."""
    names = [f"{registry}/x@sha256:{release + 1:032x}{number:032x}" for number in range(IMAGES)]
    document = yaml.safe_load(file_text(names[0]))
    document["containers"] = [
        {"name": f"c{number}", "image": name} for number, name in enumerate(names)
    ]
    document["shim"]["upstream-container"] = "c0"
    return yaml.safe_dump(document).encode()


def seconds_until_ready(installation: Installation, name: str) -> float:
    """Create a Container of an image of its own and return how long it takes until it is Ready."""
    cluster = installation.cluster
    image = push(Image(files={"/x": name.encode()}, entrypoint=("/x",)), cluster.registry, name)
    installation.repository(f"acme/{name}").release("v1", file_text(image))
    began = time.monotonic()
    installation.create_container(name, repo=f"acme/{name}", tag="v1")
    enclave = until_sync(lambda: installation.enclaves(name), within=60, what=f"Enclave of {name}")
    run_pod(installation, enclave[0].metadata.name)
    installation.wait_for(name, "Ready", within=60)
    return time.monotonic() - began


def test_another_organization_is_ready_as_fast_as_alone(
    attacked: Installation, slow: SlowRegistry
) -> None:
    alone = max(seconds_until_ready(attacked, f"alone-{number}") for number in range(2))

    attacker = replace(attacked, slug=f"{attacked.slug}x", processes=[])
    try:
        attacker.create_organization()
        repository = attacker.repository("slow/images")
        for number in range(CONTAINERS):
            repository.release(f"v{number}", many_images(slow.host, number))
            attacker.create_container(f"slow-{number}", repo="slow/images", tag=f"v{number}")
        until_sync(lambda: slow.asked >= 4, within=60, what="lookups at the slow registry")

        # The better of two: who waits for the slow registry waits both times.
        beside = min(seconds_until_ready(attacked, f"beside-{number}") for number in range(2))
        assert beside <= alone + MARGIN
        _, metrics = attacked.processes[0].request("/metrics")
        assert 'cloister_operator_lookups_waiting{lane="registries"}' in metrics
    finally:
        attacker.end()
