"""Fixtures of the facade's tests."""

from tests.support.faults.interrupted_calls import proxy, rich, shaken_settings
from tests.support.programs.facade import (
    facade,
    facade_registry,
    facade_settings,
    other_world,
    world,
)

__all__ = [
    "facade",
    "facade_registry",
    "facade_settings",
    "other_world",
    "proxy",
    "rich",
    "shaken_settings",
    "world",
]
