"""What the start of each program must not pay for: libraries and models that few installations use.

Counts instead of times, so that it says which one came back; `python -m dev.bench start` measures.
"""

import json
import subprocess
import sys
from typing import Any

import pytest
from fastapi.routing import APIRoute

from cloister_api.main import ROUTERS

ASKED = """
import json, sys
import {module}
from pydantic import BaseModel

def models(base):
    for each in base.__subclasses__():
        yield each
        yield from models(each)

def ours(model):
    return model.__module__.startswith("cloister_")

print(json.dumps({{
    "modules": list(sys.modules),
    "models": sorted({{
        each.__name__
        for each in models(BaseModel)
        if ours(each) and each.__pydantic_complete__
        and "RequestBody" not in [base.__name__ for base in each.__mro__]
    }}),
}}))
"""
"""Prints the modules that a program imports, and those of our models that it builds beside the
bodies of requests, which the routes need."""
TRACING = ("opentelemetry.sdk", "opentelemetry.exporter", "opentelemetry.proto")
"""What records and sends; the framework of the API imports the interface, which does nothing."""


def imported(module: str) -> dict[str, Any]:
    """Return what Python has imported and built after an import of a module."""
    found: dict[str, Any] = json.loads(
        subprocess.run(
            [sys.executable, "-c", ASKED.format(module=module)],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
    )
    return found


@pytest.mark.parametrize(
    ("module", "absent", "built"),
    [
        (
            "cloister_api.commands.serve",
            {
                "acme",
                "alembic",
                "cloister_api.backup",
                "dns",
                "josepy",
                "kopf",
                "OpenSSL",
                "psycopg",
                "requests",
                "sqlalchemy.dialects.postgresql",
                "stripe",
                *TRACING,
            },
            {
                "ContainerSpec",
                "DefaultLimits",
                "InstallationSettings",
                "KeyCheckResponse",
                "KindInfo",
                "RateWindow",
            },
        ),
        (
            "cloister_operator.commands.run",
            {
                "cloister_api",
                "cryptography",
                "fastapi",
                "opentelemetry",
                "psycopg",
                "sqlalchemy",
                "starlette",
                "stripe",
                "uvicorn",
            },
            {"DefaultLimits", "InstallationSettings", "KindInfo"},
        ),
    ],
)
def test_a_program_starts_without(module: str, absent: set[str], built: set[str]) -> None:
    found = imported(module)
    assert absent.isdisjoint(found["modules"])
    assert set(found["models"]) <= built


def test_routes_are_built_without_the_bodies_of_responses() -> None:
    routes = [each for router in ROUTERS for each in router.routes if isinstance(each, APIRoute)]
    assert len(routes) > 50
    assert [each.path for each in routes if each.response_field or each.response_fields] == []
    assert [each for each in routes if each.response_model]
