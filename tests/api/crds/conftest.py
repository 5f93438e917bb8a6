"""Two API servers: one with the kinds, shared with others, and one with policies and roles too."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from dev import cluster as local
from tests.support.cluster.accounts import install_roles, organization_namespace
from tests.support.cluster.clusters import install_crds, session_name


@pytest.fixture(scope="session")
def kubeconfig(request: pytest.FixtureRequest) -> Path:
    """Provide an administrator's way to a server that other tests use as well."""
    given = os.environ.get("CLOISTER_TEST_KUBECONFIG")
    if given:
        return Path(given)
    found: local.Cluster = request.getfixturevalue("api_cluster")
    return found.kubeconfig


@pytest.fixture(scope="session")
def guarded(worker_id: str) -> Iterator[Path]:
    """Provide an administrator's way to a server of our own, with kinds, accounts and roles.

    Admission policies, which come with some tests, keep even administrators from what others do.
    """
    given = os.environ.get("CLOISTER_TEST_KUBECONFIG")
    if given:
        yield Path(given)
        return
    name = f"{session_name()}-guarded-{worker_id}"
    found = local.up(name, node=False)
    install_crds(found)
    install_roles(found)
    made = [body for _, body in organization_namespace("acme")]
    found.kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(made))
    yield found.kubeconfig
    local.down(name)
