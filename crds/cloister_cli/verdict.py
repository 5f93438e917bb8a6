"""The verdict about a configuration file as a table for people, with excerpts of the file."""

import re

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from cloister_crds.config import ParsedConfig
from cloister_crds.problems import Problem, Severity

BREAKS = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""Where YAML 1.1, which the event parser speaks, ends a line."""
COLOURS = {Severity.ERROR: "bold red", Severity.WARNING: "yellow"}


def print_verdict(parsed: ParsedConfig, name: str) -> None:
    """Print all problems of a file, each with the line that it is about, and a summary."""
    console = Console(highlight=False, soft_wrap=False)
    lines = BREAKS.split(parsed.raw.decode("utf-8-sig", "replace"))
    if parsed.problems:
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.add_column("place", justify="right", no_wrap=True)
        table.add_column("problem", ratio=1, overflow="fold")
        for problem in parsed.problems:
            table.add_row(_place(problem), _cell(problem, lines, console.width))
        console.print(table)
    console.print(_summary(parsed, name))


def printable(text: str) -> str:
    """Escape what would control a terminal."""
    return "".join(char if char.isprintable() else "�" for char in text.replace("\t", " "))


def _place(problem: Problem) -> str:
    return f"{problem.line}:{problem.column}" if problem.line else "-"


def _cell(problem: Problem, lines: list[str], width: int) -> Group:
    head = Text()
    head.append(problem.severity.value, style=COLOURS[problem.severity])
    head.append(f" {problem.code} ", style="bold")
    head.append(printable(problem.field or "the file"), style="cyan")
    parts = [head, Text(printable(problem.message))]
    if problem.line and problem.column and problem.line <= len(lines):
        parts.append(_excerpt(lines[problem.line - 1], problem.column, width - 20))
    parts.append(Text())
    return Group(*parts)


def _excerpt(line: str, column: int, width: int) -> Text:
    """Show the part of a line around a column, with a mark below it."""
    width = max(width, 20)
    start = max(0, column - 1 - width // 2) if len(line) > width else 0
    shown = printable(line[start : start + width])
    mark = " " * (column - 1 - start) + "^"
    return Text(f"  {shown}\n  {mark}", style="dim", no_wrap=True)


def _summary(parsed: ParsedConfig, name: str) -> Text:
    errors, warnings = len(parsed.errors), len(parsed.warnings)
    counts = [
        f"{count} {noun}{'' if count == 1 else 's'}"
        for count, noun in ((errors, "error"), (warnings, "warning"))
        if count
    ]
    word, style = ("valid", "bold green") if parsed.valid else ("invalid", "bold red")
    text = Text(f"{printable(name)} is ")
    text.append(word, style=style)
    text.append(f": {', '.join(counts)}" if counts else "")
    return text.append(f"\n{parsed.digest}", style="dim") if parsed.valid else text
