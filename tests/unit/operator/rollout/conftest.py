"""Worlds that the tests of decisions begin with."""

import pytest

from tests.support.builders.world import SimulatedCluster


@pytest.fixture
def world() -> SimulatedCluster:
    """Return a world in which nothing has happened."""
    return SimulatedCluster()


@pytest.fixture
def serving() -> SimulatedCluster:
    """Return a world in which v1.0.0 serves."""
    world = SimulatedCluster()
    world.settle()
    world.decisions.clear()
    return world
