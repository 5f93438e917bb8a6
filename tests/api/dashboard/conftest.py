"""Fixtures of the dashboard's tests."""

from tests.support.programs.dashboard import dashboard, dashboard_settings
from tests.support.programs.facade import (
    facade,
    facade_registry,
    facade_settings,
    other_world,
    world,
)

__all__ = [
    "dashboard",
    "dashboard_settings",
    "facade",
    "facade_registry",
    "facade_settings",
    "other_world",
    "world",
]
