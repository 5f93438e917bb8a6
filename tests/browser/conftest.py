"""Fixtures of the tests in a browser."""

from tests.support.programs.browser import chromium, visitor
from tests.support.programs.dashboard import dashboard, dashboard_settings
from tests.support.programs.facade import (
    facade,
    facade_registry,
    facade_settings,
    other_world,
    world,
)
from tests.support.programs.openid_dashboard import real_sign_ins

__all__ = [
    "chromium",
    "dashboard",
    "dashboard_settings",
    "facade",
    "facade_registry",
    "facade_settings",
    "other_world",
    "real_sign_ins",
    "visitor",
    "world",
]
