"""Fixtures of the facade's tests."""

from tests.support.faults.interrupted_calls import (
    entitled_world,
    proxied,
    proxied_settings,
    proxy,
)
from tests.support.programs.facade import (
    facade,
    facade_registry,
    facade_settings,
    other_world,
    world,
)

__all__ = [
    "entitled_world",
    "facade",
    "facade_registry",
    "facade_settings",
    "other_world",
    "proxied",
    "proxied_settings",
    "proxy",
    "world",
]
