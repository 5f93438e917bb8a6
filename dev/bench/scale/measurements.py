"""Measurements: when objects became ready, writes per client, CPU and memory of processes."""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

Object = dict[str, Any]
Write = tuple[str, str, str]
"""User agent, verb, and resource with subresource."""

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_KIB: Final = 1024


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """CPU and memory that a process has used since its start."""

    processor: float
    """processor time in seconds."""
    peak: float
    """Largest resident memory, in MiB."""


def usage(pid: int) -> ProcessUsage:
    """Read the CPU and memory usage of a process (proc(5), "/proc/PID/stat", "/proc/PID/status").

    Raises
    ------
    OSError
        When there is no such process.
    """
    after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    return ProcessUsage((int(after[11]) + int(after[12])) / _TICKS, peak / _KIB)


@dataclass(slots=True)
class Readiness:
    """Creation and readiness times of objects, by the clock of this process."""

    is_ready: Callable[[Object], bool]
    """Returns whether an object is ready."""
    created: dict[str, float] = field(default_factory=dict)
    """Name of an object -> when its creation began."""
    seen: dict[str, float] = field(default_factory=dict)
    """Name of an object -> when it was first observed ready."""

    def observe(self, body: Object) -> None:
        """Record the state of an object from a watch."""
        name = body["metadata"]["name"]
        if name not in self.seen and self.is_ready(body):
            self.seen[name] = time.monotonic()

    @property
    def complete(self) -> bool:
        """Whether all created objects are ready."""
        return self.created.keys() <= self.seen.keys()

    @property
    def began(self) -> float:
        """When the first creation began."""
        return min(self.created.values())

    @property
    def total(self) -> float:
        """Seconds from the first creation until the last object was ready."""
        return max(self.seen[name] for name in self.created) - self.began

    def each(self) -> list[float]:
        """Return the seconds from creation to readiness of each object, ascending."""
        return sorted(self.seen[name] - created for name, created in self.created.items())

    def curve(self) -> list[float]:
        """Return the seconds after the first creation at which one more object was ready."""
        return sorted(self.seen[name] - self.began for name in self.created)


def percentile(values: list[float], part: float) -> float:
    """Return a percentile of sorted values.

    Parameters
    ----------
    part
        From 0 to 1.
    """
    return values[min(len(values) - 1, int(len(values) * part))]


@dataclass(frozen=True, slots=True)
class AuditLog:
    """The API server's audit log of writes (Kubernetes, "Auditing")."""

    path: Path
    """Its file."""

    def mark(self) -> int:
        """Return the current position, to count from later."""
        return self.path.stat().st_size

    def events(self, since: int) -> Iterable[Object]:
        """Yield the writes after a position, including refused ones."""
        with self.path.open("rb") as file:
            file.seek(since)
            for line in file:
                if line.endswith(b"\n"):
                    yield json.loads(line)

    def writes(self, since: int) -> Counter[Write]:
        """Count the writes after a position; refused ones have ``refused`` before their verb."""
        counted: Counter[Write] = Counter()
        for event in self.events(since):
            place = event.get("objectRef") or {}
            resource = "/".join(filter(None, (place.get("resource"), place.get("subresource"))))
            refused = event.get("responseStatus", {}).get("code", 0) >= 300  # noqa: PLR2004 - no success
            verb = f"refused {event['verb']}" if refused else event["verb"]
            counted[event.get("userAgent", "").split("/")[0], verb, resource] += 1
        return counted
