"""The metrics that queries name, and those that a scrape has."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import Metric

__all__ = [
    "MONITORING",
    "alert_queries",
    "dashboard_queries",
    "dashboard_variables",
    "metrics_of",
    "series_names",
]

MONITORING = Path(__file__).resolve().parents[2] / "charts" / "cloister" / "files"
"""Folder of alerts and dashboards."""
_NO_METRIC = re.compile(
    r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]|\b(by|on|ignoring|without)\s*\([^)]*\)|\b(and|or|unless)\b'
)
_METRIC = re.compile(r"\b[a-z_]\w*\b(?!\s*\()")
_LABEL_VALUES = re.compile(r"label_values\((\w+), (\w+)\)")
_SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}


def metrics_of(query: str) -> set[str]:
    """Return the names of the series that a query of PromQL reads."""
    return set(_METRIC.findall(_NO_METRIC.sub(" ", query)))


def series_names(families: dict[str, Metric]) -> set[str]:
    """Return the names of the series that scraped families have."""
    return {
        f"{name}{suffix}"
        for name, family in families.items()
        for suffix in _SUFFIXES.get(family.type, ("",))
    }


def alert_queries() -> Iterator[tuple[str, str]]:
    """Return the alerts and their queries."""
    document = yaml.safe_load((MONITORING / "alerts.yaml").read_text(encoding="utf-8"))
    for group in document["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


def dashboard_queries() -> Iterator[tuple[str, str]]:
    """Return the panels of all dashboards and their queries."""
    for name, dashboard in _dashboards():
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                yield f"{name}: {panel['title']}", target["expr"]


def dashboard_variables() -> Iterator[tuple[str, str, str]]:
    """Return the variables that dashboards ask for, each with its series and their label."""
    for _, dashboard in _dashboards():
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "query":
                found = _LABEL_VALUES.fullmatch(variable["query"])
                assert found is not None, variable["query"]
                yield variable["name"], found[1], found[2]


def _dashboards() -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the dashboards by name."""
    for path in sorted((MONITORING / "dashboards").glob("*.json")):
        yield path.stem, json.loads(path.read_text(encoding="utf-8"))
