"""The report: a Markdown table, JSON, and a plot of ready objects over time."""

from dataclasses import dataclass
from html import escape
from typing import Any, Final

from dev.bench.scale.cloister import SideResult, Takeover
from dev.bench.scale.measurements import percentile

_OURS: Final = {"Cloister": "cloister-operator", "Argo Rollouts": "rollouts-controller"}
"""Side -> the user agent of its controller."""
_SHARED: Final = (
    *("deployments", "deployments/status", "organizations/status", "hosts/status"),
    *("networkpolicies", "poddisruptionbudgets"),
)
"""Resources that are written once for many Containers."""
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 720, 360, 60, 50, 30, 20
_COLOURS: Final = ("#1f77b4", "#d95f02")
_TICKS: Final = 5


@dataclass(frozen=True, slots=True)
class Report:
    """Results of one run."""

    count: int
    """Objects per side."""
    per_organization: int
    """Containers per Organization."""
    load: float
    """Load average over one minute, before the run."""
    cores: int
    """CPU cores of the machine."""
    sides: tuple[SideResult, ...]
    """The sides; Cloister's first."""
    restart: Takeover
    """A restart with all Containers present."""
    takeover: Takeover
    """The leader killed, with a standby waiting."""

    @property
    def ours(self) -> SideResult:
        """Cloister's side."""
        return self.sides[0]

    @property
    def writes_each(self) -> float:
        """Writes of the operator per Container, without Events and shared resources."""
        found = _controllers(self.ours).items()
        left_out = (*_SHARED, "events")
        own = sum(number for (_, resource), number in found if resource not in left_out)
        return own / self.count


def _controllers(side: SideResult) -> dict[tuple[str, str], int]:
    """Return the writes of a side's controller by verb and resource, most frequent first."""
    return {
        (verb, resource): number
        for (who, verb, resource), number in side.writes.most_common()
        if who == _OURS[side.name]
    }


def as_json(report: Report) -> dict[str, Any]:
    """Return the report as JSON data."""
    return {
        "count": report.count,
        "perOrganization": report.per_organization,
        "cores": report.cores,
        "load": report.load,
        "sides": [_side(side) for side in report.sides],
        "restart": _change(report.restart),
        "takeover": _change(report.takeover),
    }


def _change(change: Takeover) -> dict[str, Any]:
    return {
        "workingSeconds": round(change.working, 2),
        "caughtUpSeconds": round(change.caught_up, 2),
        "writes": change.writes.total(),
    }


def _side(side: SideResult) -> dict[str, Any]:
    each = side.readiness.each()
    return {
        "name": side.name,
        "allReadySeconds": round(side.readiness.total, 2),
        "p50Seconds": round(percentile(each, 0.5), 2),
        "p99Seconds": round(percentile(each, 0.99), 2),
        "processorSeconds": round(side.controller.processor, 2),
        "peakMiB": round(side.controller.peak, 1),
        "clusterProcessorSeconds": {name: round(value, 2) for name, value in side.others.items()},
        "writes": [
            {"by": who, "verb": verb, "resource": resource, "number": number}
            for (who, verb, resource), number in side.writes.most_common()
        ],
        "readyAtSeconds": [round(value, 2) for value in side.readiness.curve()],
    }


def table(report: Report) -> str:
    """Format the results as Markdown tables."""
    sides = [_side(side) for side in report.sides]
    rows = [
        ("all ready after", [f"{each['allReadySeconds']:.1f} s" for each in sides]),
        ("p50 per object", [f"{each['p50Seconds']:.1f} s" for each in sides]),
        ("p99 per object", [f"{each['p99Seconds']:.1f} s" for each in sides]),
        (
            "writes of the controller per object",
            [f"{sum(_controllers(side).values()) / report.count:.1f}" for side in report.sides],
        ),
        (
            "writes of all clients per object",
            [_all_writes(side, report.count) for side in report.sides],
        ),
        (
            "processor time of the controller",
            [f"{each['processorSeconds']:.1f} s" for each in sides],
        ),
        *(
            (
                f"processor time of {name}",
                [f"{each['clusterProcessorSeconds'][name]:.1f} s" for each in sides],
            )
            for name in sides[0]["clusterProcessorSeconds"]
        ),
        ("peak memory of the controller", [f"{each['peakMiB']:.0f} MiB" for each in sides]),
    ]
    lines = [
        (
            f"{report.count} objects, {report.per_organization} per namespace, "
            f"{report.cores} cores, load {report.load:.1f} before the run"
        ),
        "",
        "| what | " + " | ".join(each["name"] for each in sides) + " |",
        "|---" * (len(sides) + 1) + "|",
        *(f"| {what} | " + " | ".join(cells) + " |" for what, cells in rows),
        "",
        "| change of the operator | cache complete after | caught up after | writes |",
        "|---|---|---|---|",
    ]
    changes = (("restart", report.restart), ("takeover after kill -9", report.takeover))
    lines += [
        f"| {what} | {change.working:.1f} s | {change.caught_up:.1f} s | {change.writes.total()} |"
        for what, change in changes
    ]
    for side in report.sides:
        lines += ["", f"| {side.name} writes | per object |", "|---|---|"]
        lines += [
            f"| {verb} {resource} | {number / report.count:.2f} |"
            for (verb, resource), number in _controllers(side).items()
        ]
    return "\n".join(lines)


def _all_writes(side: SideResult, count: int) -> str:
    leave_out = {"leases", "nodes/status"}
    number = sum(n for (_, _, resource), n in side.writes.items() if resource not in leave_out)
    return f"{number / count:.1f}"


def plot(report: Report) -> str:
    """Plot the number of ready objects of each side over time, as SVG."""
    end = max(side.readiness.total for side in report.sides)
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place(seconds: float, number: float) -> tuple[float, float]:
        return _LEFT + wide * seconds / end, _TOP + high * (1 - number / report.count)

    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            'font-family="sans-serif" font-size="13">'
        ),
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_WIDTH / 2, 18, f"{report.count} objects created at once: number ready"),
    ]
    for tick in range(_TICKS + 1):
        seconds, number = end * tick / _TICKS, report.count * tick / _TICKS
        x, y = place(seconds, number)
        parts += [
            f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#dddddd"/>',
            _text(x, _HEIGHT - _BOTTOM + 18, f"{seconds:.0f} s"),
            _text(_LEFT - 6, y + 4, f"{number:.0f}", anchor="end"),
        ]
    for place_in_row, (side, colour) in enumerate(zip(report.sides, _COLOURS, strict=False)):
        points = [place(0, 0)]
        for number, seconds in enumerate(side.readiness.curve(), start=1):
            points.append(place(seconds, number))
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        name = escape(f"{side.name}: {side.readiness.total:.1f} s")
        x = _LEFT + 20 + 240 * place_in_row
        parts += [
            f'<path d="M{x} {_HEIGHT - 14}h24" stroke="{colour}" stroke-width="3"/>',
            _text(x + 30, _HEIGHT - 10, name, anchor="start"),
        ]
    return "\n".join([*parts, "</svg>", ""])


def _text(x: float, y: float, text: str, *, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'
