"""Argo CD's view of an object: our health check, run in the Lua that Argo CD runs (5.1)."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from lupa.lua51 import LuaRuntime

__all__ = ["PATCH", "health_of"]

PATCH = Path(__file__).parents[3] / "docs" / "gitops" / "argocd-cm.yaml"
"""The health checks that Cloister ships for Argo CD's ConfigMap."""
_LIBRARIES = ("io", "debug", "require", "loadfile", "dofile", "python", "string", "math")
"""Lua libraries that Argo CD does not load or forbids (its manual, "Custom Health Checks")."""


@cache
def _check() -> str:
    """Read the check as Argo CD does: YAML in a value of the ConfigMap."""
    customizations = yaml.safe_load(PATCH.read_text())["data"]["resource.customizations"]
    return str(yaml.safe_load(customizations)["cloister.dev/*"]["health.lua"])


def health_of(body: Mapping[str, Any]) -> tuple[str, str]:
    """Return an object's health and its message."""
    lua = LuaRuntime(unpack_returned_tuples=True)
    for name in _LIBRARIES:
        lua.globals()[name] = None
    lua.globals()["obj"] = lua.table_from(body, recursive=True)
    health: Any = lua.execute(_check())
    return str(health["status"]), str(health["message"])
