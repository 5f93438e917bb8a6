"""Parses samples: of Pods (``metrics.k8s.io/v1beta1``), of GPUs (DCGM exporters). Pure."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from cloister_crds.config.syntax.scalars import read_duration

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
    """By name; without those of which an amount is missing or is not a quantity."""


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
        When the content is not a list.
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
    """Return what a Pod used; None if its window is not a duration."""
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
    """Parse a quantity such as ``1500n``, ``64Mi`` or ``1e3``; None if it is none, or negative."""
    match = QUANTITY.fullmatch(text)
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    factor = Decimal(10) ** int(exponent) if exponent else FACTORS.get(suffix or "")
    return None if factor is None else float(Decimal(number) * factor)


BUSY = "DCGM_FI_DEV_GPU_UTIL"
ENGINE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
"""Share of time, from 0 to 1; the only one that instances of a partitioned GPU have."""
USED = "DCGM_FI_DEV_FB_USED"
FREE = "DCGM_FI_DEV_FB_FREE"
RESERVED = "DCGM_FI_DEV_FB_RESERVED"
TOTAL = "DCGM_FI_DEV_FB_TOTAL"
NAMES = (BUSY, ENGINE, USED, FREE, RESERVED, TOTAL)
KIB = 1024
"""KiB of a MiB."""


class ExpositionError(Exception):
    """A text is not what an exporter writes."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """What one GPU, or one instance of it, was used for."""

    busy: float | None
    """Share of time in use, from 0 to 1; None if it does not tell."""
    memory: float
    """Memory in use, in KiB."""
    memory_given: float
    """Memory that it has, in KiB; 0 if it does not tell."""


@dataclass(frozen=True, slots=True)
class GpuTotals:
    """The sum of several GPUs."""

    gpus: int
    """How many there are."""
    busy: float
    """GPUs in use on average."""
    busy_of: int
    """GPUs that tell how much they are in use."""
    memory: float
    """Memory in use, in KiB."""
    memory_given: float
    """Memory that they have, in KiB."""

    @classmethod
    def of(cls, readings: Iterable[GpuReading]) -> "GpuTotals":
        """Add up readings."""
        all_of_them = list(readings)
        known = [one.busy for one in all_of_them if one.busy is not None]
        return cls(
            gpus=len(all_of_them),
            busy=sum(known),
            busy_of=len(known),
            memory=sum(one.memory for one in all_of_them),
            memory_given=sum(one.memory_given for one in all_of_them),
        )


@dataclass(frozen=True, slots=True)
class GpuReport:
    """What exporters report."""

    gpus: Mapping[str, GpuReading]
    """Readings by GPU, or instance of one."""
    pods: Mapping[Place, frozenset[str]]
    """GPUs of each Pod. Several containers may have the same one."""

    def totals_of(self, place: Place) -> GpuTotals | None:
        """Return the sum of a Pod's GPUs; None if it has none."""
        gpus = self.pods.get(place)
        return GpuTotals.of(self.gpus[gpu] for gpu in gpus) if gpus else None

    @property
    def totals(self) -> GpuTotals:
        """The sum of all GPUs."""
        return GpuTotals.of(self.gpus.values())


def merged(reports: Iterable[GpuReport]) -> GpuReport:
    """Combine the reports of several nodes."""
    gpus: dict[str, GpuReading] = {}
    pods: dict[Place, frozenset[str]] = {}
    for report in reports:
        gpus |= report.gpus
        for place, own in report.pods.items():
            pods[place] = pods.get(place, frozenset()) | own
    return GpuReport(gpus, pods)


def read_gpus(text: str) -> GpuReport:
    """Return what an exporter reports; series of other metrics are left out.

    Raises
    ------
    ExpositionError
        When a line of a metric that is needed is not in Prometheus' text format.
    """
    # A report has a hundred series for each GPU, of which a few are needed.
    lines = [line for line in text.splitlines() if line.startswith(NAMES)]
    values: dict[str, dict[str, float]] = {}
    pods: dict[Place, set[str]] = {}
    try:
        families = list(text_string_to_metric_families("\n".join(lines) + "\n"))
    except (ValueError, IndexError) as error:  # the parser raises either
        raise ExpositionError(f"not in the text format of Prometheus: {error}") from error
    for sample in (sample for family in families for sample in family.samples):
        labels = sample.labels
        uuid = labels.get("UUID", "")
        if sample.name not in NAMES or not uuid or not 0 <= sample.value < math.inf:
            continue
        gpu = f"{uuid}/{labels.get('GPU_I_ID', '')}"
        values.setdefault(gpu, {})[sample.name] = sample.value
        if labels.get("namespace") and labels.get("pod"):
            pods.setdefault((labels["namespace"], labels["pod"]), set()).add(gpu)
    return GpuReport(
        {gpu: reading_of(own) for gpu, own in values.items()},
        {place: frozenset(own) for place, own in pods.items()},
    )


def reading_of(values: Mapping[str, float]) -> GpuReading:
    """Build the reading of one GPU from its values by name."""
    busy = values[BUSY] / 100 if BUSY in values else values.get(ENGINE)
    used, free = values.get(USED), values.get(FREE)
    if used is None or (free is None and TOTAL not in values):
        used = total = 0.0
    else:
        total = values.get(TOTAL, used + (free or 0.0) + values.get(RESERVED, 0.0))
    return GpuReading(
        busy=None if busy is None else min(busy, 1.0),
        memory=min(used, total) * KIB,
        memory_given=total * KIB,
    )
