"""Parses a kubelet's metrics of resource usage. Pure.

Source: Kubernetes, "Kubernetes Metrics Reference", path ``/metrics/resource``: the text format of
Prometheus, with the time of each sample in milliseconds. Two of many metrics are needed, and a node
reports them for every Pod, so lines are filtered by their prefix first.
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
    """What one container used, by the counters of its node."""

    cpu: float
    """Processor time since the container's start, in seconds."""
    memory: float
    """Memory in use, in bytes."""
    at: float
    """When the processor time was read, in Unix seconds of the node's clock."""


def read_resources(text: str) -> Mapping[Place, Mapping[str, ResourceReading]]:
    """Return what the containers of each Pod used.

    Returns
    -------
    Mapping
        By Pod and name of the container; a container without one of the two metrics is left out,
        and so are lines of other metrics.
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
            name: ResourceReading(values[CPU][0], values[MEMORY][0], values[CPU][1])
            for name, values in containers.items()
            if CPU in values and MEMORY in values
        }
        for place, containers in found.items()
    }


def number(text: str) -> float | None:
    """Parse a number; None = it is not a number, or negative or infinite."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
