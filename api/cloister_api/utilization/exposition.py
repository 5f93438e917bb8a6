"""Reads what a kubelet tells of resources in use: a pure function over its text.

Source: Kubernetes, "Kubernetes Metrics Reference", path ``/metrics/resource``: the text format of
Prometheus, with the time of each figure in milliseconds. Two figures of many are needed, and a node
tells them of every Pod, so lines are told apart by their beginning.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Place", "ResourceReading", "read_resources"]

Place = tuple[str, str]
"""Namespace and name of a Pod."""

CPU = "container_cpu_usage_seconds_total"
MEMORY = "container_memory_working_set_bytes"
LINE = re.compile(rf"^({CPU}|{MEMORY})\{{([^}}]*)\}}\s+(\S+)\s+(\d+)\s*$")
LABEL = re.compile(r'(\w+)="([^"\\]*)"')


@dataclass(frozen=True, slots=True)
class ResourceReading:
    """What one container used, as its node counts."""

    cpu: float
    """Processor time since the container's start, in seconds."""
    memory: float
    """Memory in use, in bytes."""
    at: float
    """When the processor time was read, in Unix seconds of the node's clock."""


def read_resources(text: str) -> Mapping[Place, Mapping[str, ResourceReading]]:
    """Return what the containers of each Pod used.

    Parameters
    ----------
    text
        The kubelet's answer.

    Returns
    -------
    Mapping
        By Pod and name of the container; a container of which one of the figures is missing is
        left out, and so are lines that are none of the two figures.
    """
    found: dict[Place, dict[str, dict[str, tuple[float, float]]]] = {}
    for line in text.splitlines():
        if not line.startswith((CPU, MEMORY)):
            continue
        match = LINE.match(line)
        value = number(match[3]) if match else None
        if match is None or value is None:
            continue
        labels = dict(LABEL.findall(match[2]))
        place = (labels.get("namespace", ""), labels.get("pod", ""))
        own = found.setdefault(place, {}).setdefault(labels.get("container", ""), {})
        own[match[1]] = (value, int(match[4]) / 1000)
    return {
        place: {
            name: ResourceReading(figures[CPU][0], figures[MEMORY][0], figures[CPU][1])
            for name, figures in containers.items()
            if CPU in figures and MEMORY in figures
        }
        for place, containers in found.items()
    }


def number(text: str) -> float | None:
    """Return a figure; None = it is none, or not one that counts."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
