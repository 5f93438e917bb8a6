"""Worlds that the tests of decisions begin with."""

import pytest

from tests.support.builders.world import World


@pytest.fixture
def world() -> World:
    """Return a world in which nothing has happened."""
    return World()


@pytest.fixture
def serving() -> World:
    """Return a world in which v1.0.0 serves."""
    world = World()
    world.settle()
    world.decisions.clear()
    return world
