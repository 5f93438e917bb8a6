"""Counters and gauges of the process, and their text for Prometheus.

Written in the event loop, read by the health thread: single assignments of numbers, no locks.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["OperatorMetrics"]

_HELP = {
    "cloister_operator_passes_total": "Passes by kind and result.",
    "cloister_operator_pass_seconds_total": "Seconds spent in passes by kind.",
    "cloister_operator_writes_total": "Writes to the API server by verb and kind.",
    "cloister_operator_questions_total": "Questions to sources and registries by kind and result.",
    "cloister_operator_events_total": "Events of watches by kind.",
    "cloister_operator_vanished_total": "Objects that vanished unseen, by kind.",
    "cloister_operator_queue_due": "Keys that wait for a worker.",
    "cloister_operator_queue_delayed": "Keys that wait for their time.",
    "cloister_operator_objects": "Objects known by kind.",
    "cloister_operator_clock_offset_seconds": "Seconds that the API server is ahead.",
}


class _Series(NamedTuple):
    """A name with labels."""

    name: str
    labels: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class OperatorMetrics:
    """All figures of one process."""

    _counters: defaultdict[_Series, float] = field(default_factory=lambda: defaultdict(float))
    _gauges: dict[str, Callable[[], dict[str, float]]] = field(default_factory=dict)

    def add(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Count something.

        Parameters
        ----------
        name
            Name without the prefix ``cloister_operator_``.
        amount
            How much to add.
        labels
            Labels of the series.
        """
        self._counters[_Series(f"cloister_operator_{name}", tuple(sorted(labels.items())))] += (
            amount
        )

    def total(self, name: str, **labels: str) -> float:
        """Answer the sum of a counter over all series that have these labels."""
        wanted = set(labels.items())
        full = f"cloister_operator_{name}"
        return sum(
            value
            for series, value in list(self._counters.items())
            if series.name == full and wanted <= set(series.labels)
        )

    def gauge(self, name: str, read: Callable[[], dict[str, float]]) -> None:
        """Register a figure that is read when asked: values by kind, or one under ``""``."""
        self._gauges[f"cloister_operator_{name}"] = read

    def text(self) -> str:
        """Write all figures (Prometheus, "Text-based format")."""
        lines: list[str] = []
        counters = sorted(self._counters.items())
        for name in sorted({series.name for series, _ in counters}):
            lines += [f"# HELP {name} {_HELP.get(name, name)}", f"# TYPE {name} counter"]
            lines += [
                f"{name}{_labels(series.labels)} {value:g}"
                for series, value in counters
                if series.name == name
            ]
        for name, read in sorted(self._gauges.items()):
            lines += [f"# HELP {name} {_HELP.get(name, name)}", f"# TYPE {name} gauge"]
            lines += [
                f"{name}{_labels((('kind', kind),) if kind else ())} {value:g}"
                for kind, value in sorted(read().items())
            ]
        return "\n".join(lines) + "\n"


def _labels(labels: tuple[tuple[str, str], ...]) -> str:
    """Write labels; their values are words of ours."""
    inside = ",".join(f'{name}="{value}"' for name, value in labels)
    return f"{{{inside}}}" if inside else ""
