"""The API server with the kinds, policies and roles of this checkout."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def kubeconfig(request: pytest.FixtureRequest) -> Path:
    given = os.environ.get("CLOISTER_TEST_KUBECONFIG")
    return Path(given) if given else request.getfixturevalue("api_cluster").kubeconfig
