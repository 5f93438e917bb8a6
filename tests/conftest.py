"""Fixtures that every test may ask for, and how hypothesis works in all of them."""

from hypothesis import HealthCheck, settings

from tests.support.cluster.clusters import (
    api_cluster,
    cluster,
    namespace,
    node_namespace,
    pytest_collection_finish,
    pytest_configure,
    pytest_runtest_logreport,
    pytest_sessionfinish,
    simulated_cluster,
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
    "simulated_cluster",
]

# How fast inputs are made says how busy the machine is, and nothing about what is tested.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
