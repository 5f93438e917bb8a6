"""Charts as SVG: decided here as numbers, drawn by the template, legible without colour.

Every chart stands next to a table with the same numbers.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 720, 200
"""Size of the drawing, in its own units."""
MOST_SERIES = 7
"""Series that are drawn one by one; the others are one more."""
OTHERS = "others"
TICKS = 4
LEAST = 1e-9
"""Least top of a scale."""
STEPS = (1, 2, 2.5, 5, 10)
"""Numbers that people count by."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A line with a number."""

    y: float
    """Where it is."""
    text: str
    """The number."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A series' share of a bar."""

    series: int
    """Number of the series."""
    y: float
    """Where it begins, from the top."""
    height: float
    """Its height."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A point in time."""

    x: float
    """Where it begins."""
    width: float
    """Its width."""
    pieces: tuple[Piece, ...]
    """Shares, from the bottom."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A series as lines; it is broken where nothing is known."""

    series: int
    """Number of the series."""
    lines: tuple[str, ...]
    """Points of each line, as SVG writes them."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing."""

    names: tuple[str, ...]
    """Names of the series, by number."""
    ticks: tuple[Tick, ...]
    """Lines with numbers, from the bottom."""
    begin: str
    """Time of the first point."""
    end: str
    """Time of the last point."""
    bars: tuple[Bar, ...] = ()
    """Bars; empty if it has curves."""
    curves: tuple[Curve, ...] = ()
    """Curves; empty if it has bars."""
    width: int = WIDTH
    """Width."""
    height: int = HEIGHT
    """Height."""


def stacks(points: Sequence[tuple[str, Mapping[str, float]]]) -> Chart | None:
    """Return stacked bars; None if there is nothing to draw.

    Parameters
    ----------
    points
        Time and values by series, for each point.
    """
    totals = Counter[str]()
    for _, values in points:
        totals.update(values)
    largest = [name for name, total in totals.most_common() if total > 0 and name != OTHERS]
    if not largest:
        return None
    shown = largest[:MOST_SERIES]
    rest = len(largest) > len(shown) or totals[OTHERS] > 0
    names = (*shown, *([OTHERS] if rest else []))
    columns = []
    for _, values in points:
        column = [values.get(name, 0.0) for name in shown]
        if rest:
            column.append(sum(values.values()) - sum(column))
        columns.append(column)
    top, ticks = scale_of(max(sum(column) for column in columns))
    step = WIDTH / len(points)
    bars = tuple(
        Bar(round(number * step + step * 0.1, 2), round(step * 0.8, 2), pieces_of(column, top))
        for number, column in enumerate(columns)
    )
    return Chart(names, ticks, points[0][0], points[-1][0], bars=bars)


def pieces_of(column: Sequence[float], top: float) -> tuple[Piece, ...]:
    """Return the shares of a bar, from the bottom, without those that cannot be seen."""
    pieces, below = [], 0.0
    for series, value in enumerate(column):
        if value > 0:
            height = HEIGHT * value / top
            pieces.append(Piece(series, round(HEIGHT - below - height, 2), round(height, 2)))
            below += height
    return tuple(pieces)


def curves(
    points: Sequence[tuple[str, Mapping[str, float | None]]], *, most: float | None = None
) -> Chart | None:
    """Return curves; None if there is nothing to draw.

    Parameters
    ----------
    points
        Time and values by series, for each point; None if nothing is known.
    most
        Top of the scale; None means that of the values.
    """
    names = tuple(dict.fromkeys(name for _, values in points for name in values))
    known = [value for _, values in points for value in values.values() if value is not None]
    if not known:
        return None
    top, ticks = scale_of(max(known) if most is None else most)
    step = WIDTH / max(1, len(points) - 1)
    drawn = tuple(
        Curve(series, lines_of([values.get(name) for _, values in points], step, top))
        for series, name in enumerate(names)
    )
    return Chart(names, ticks, points[0][0], points[-1][0], curves=drawn)


def lines_of(values: Sequence[float | None], step: float, top: float) -> tuple[str, ...]:
    """Return the lines of a curve; a single point is a line of no length, which is seen."""
    lines: list[list[str]] = [[]]
    for number, value in enumerate(values):
        if value is None:
            lines.append([])
            continue
        height = HEIGHT * (1 - min(value, top) / top)
        lines[-1].append(f"{round(number * step, 1)},{round(height, 1)}")
    return tuple(" ".join(line if len(line) > 1 else line * 2) for line in lines if line)


def scale_of(most: float) -> tuple[float, tuple[Tick, ...]]:
    """Return the top of a scale, and its lines at numbers that people count by."""
    if most <= 0:
        most = 1.0
    most = max(most, LEAST)
    power = 1.0
    while power * 10 <= most / TICKS:
        power *= 10
    while power > most / TICKS:
        power /= 10
    step = next(power * each for each in STEPS if power * each * TICKS >= most)
    ticks = tuple(
        Tick(round(HEIGHT * (1 - number / TICKS), 1), short(step * number))
        for number in range(TICKS + 1)
    )
    return step * TICKS, ticks


def short(number: float) -> str:
    """Return a number as few characters."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:g}{letter}"
    return f"{number:.3g}"
