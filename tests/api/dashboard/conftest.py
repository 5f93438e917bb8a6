"""Fixtures of the dashboard's tests."""

from tests.support.programs.dashboard import dashboard, dashboard_settings
from tests.support.programs.facade import (
    facade,
    facade_registry,
    facade_settings,
    other_world,
    world,
)
from tests.support.programs.openid_dashboard import forged_sign_ins, real_sign_ins

__all__ = [
    "dashboard",
    "dashboard_settings",
    "facade",
    "facade_registry",
    "facade_settings",
    "forged_sign_ins",
    "other_world",
    "real_sign_ins",
    "world",
]
