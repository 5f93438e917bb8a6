"""Parses a list of Pods of the Metrics API (``metrics.k8s.io/v1beta1``). Pure.

Source: Kubernetes, "Resource metrics pipeline", PodMetrics: usage of processors is the mean of the
window that ends with the timestamp, memory is the working set at its end. Quantities: Kubernetes
API reference, "Quantity".
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated

import msgspec

from cloister_crds.config.syntax.durations import read_duration

__all__ = ["ContainerUsage", "Place", "PodUsage", "read_pod_metrics"]

Place = tuple[str, str]
"""Namespace and name of a Pod."""

QUANTITY = re.compile(
    r"(\d{1,19}(?:\.\d{0,19})?|\.\d{1,19})(?:[eE]([+-]?\d{1,2})|([numkKMGTPE]i?)?)"
)
FACTORS = {
    "": Decimal(1),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("num", start=-3)},
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}
"""What a number is multiplied by, by its suffix."""


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    """What one container used over a window of time."""

    cpu: float
    """Processors in use on average."""
    memory: float
    """Memory in use, in bytes."""


@dataclass(frozen=True, slots=True)
class PodUsage:
    """What the containers of a Pod used over a window of time."""

    end: float
    """Unix second that the window ends with, by the clock of the Pod's node."""
    window: float
    """Length of the window in seconds."""
    containers: Mapping[str, ContainerUsage]
    """By name; without those of which an amount is missing or is no quantity."""


class _Metadata(msgspec.Struct):
    namespace: str
    name: str


class _Container(msgspec.Struct):
    name: str
    usage: dict[str, str]


class _Pod(msgspec.Struct):
    metadata: _Metadata
    timestamp: Annotated[datetime, msgspec.Meta(tz=True)]
    window: str
    containers: list[_Container]


class _List(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


def read_pod_metrics(content: bytes) -> Mapping[Place, PodUsage]:
    """Return what the containers of each Pod used.

    Returns
    -------
    Mapping
        By Pod; without those that are not PodMetrics.

    Raises
    ------
    ValueError
        When the content is no list.
    """
    try:
        items = msgspec.json.decode(content, type=_List).items or []
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a list of PodMetrics: {error}") from error
    found: dict[Place, PodUsage] = {}
    for item in items:
        try:
            pod = msgspec.json.decode(item, type=_Pod)
        except msgspec.MsgspecError:  # one Pod costs no other its utilization
            continue
        usage = usage_of(pod)
        if usage is not None:
            found[pod.metadata.namespace, pod.metadata.name] = usage
    return found


def usage_of(pod: _Pod) -> PodUsage | None:
    """Return what a Pod used; None = its window is no duration."""
    window = read_duration(pod.window)
    if window is None:
        return None
    containers = {
        each.name: ContainerUsage(cpu, memory)
        for each in pod.containers
        if (cpu := quantity(each.usage.get("cpu", ""))) is not None
        and (memory := quantity(each.usage.get("memory", ""))) is not None
    }
    return PodUsage(pod.timestamp.timestamp(), window.total_seconds(), containers)


def quantity(text: str) -> float | None:
    """Parse a quantity such as ``1500n``, ``64Mi`` or ``1e3``; None = it is none, or negative."""
    match = QUANTITY.fullmatch(text)
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    factor = Decimal(10) ** int(exponent) if exponent else FACTORS.get(suffix or "")
    return None if factor is None else float(Decimal(number) * factor)
