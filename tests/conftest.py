"""Fixtures that every test may ask for."""

from tests.support.cluster import (
    api_cluster,
    cluster,
    namespace,
    node_namespace,
    pytest_collection_finish,
    pytest_configure,
    pytest_runtest_logreport,
    pytest_sessionfinish,
)

__all__ = [
    "api_cluster",
    "cluster",
    "namespace",
    "node_namespace",
    "pytest_collection_finish",
    "pytest_configure",
    "pytest_runtest_logreport",
    "pytest_sessionfinish",
]
