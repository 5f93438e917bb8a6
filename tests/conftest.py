"""Fixtures that every test may ask for."""

from tests.support.cluster import (
    api_cluster,
    cluster,
    namespace,
    node_namespace,
    pytest_sessionfinish,
)

__all__ = ["api_cluster", "cluster", "namespace", "node_namespace", "pytest_sessionfinish"]
