"""Fixtures that every test may request, and the settings of hypothesis."""

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

# How fast inputs are generated depends on the machine's load, not on the tested code. The inputs
# follow from the test, so that a run fails for what was changed; `make unit-random` draws others.
settings.register_profile(
    "unhurried",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)
settings.register_profile("random", settings.get_profile("unhurried"), derandomize=False)
settings.load_profile("unhurried")
