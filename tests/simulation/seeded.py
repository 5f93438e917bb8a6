"""Seeded faults: defects that are put into the operator, to see whether the simulation finds them.

Each changes one place of the product's text. It is put into a process of its own, by giving the
functions of the module the code of the changed text: whoever has imported them calls that.
"""

import importlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import yaml

from tests.simulation.faults import Fault
from tests.simulation.lives import LIVES
from tests.simulation.runs import Result, Run, freeze_memory, sweep

__all__ = ["FOUND", "SEEDED", "SeedError", "Seeded", "find", "search", "table"]


class SeedError(Exception):
    """A seeded fault does not fit the product any more."""


@dataclass(frozen=True, slots=True)
class Seeded:
    """One defect."""

    name: str
    """What the operator does then."""
    module: str
    """Module of the product."""
    old: str
    """Text that is in it once."""
    new: str
    """Text instead."""
    run: Mapping[str, Any] | None
    """The run that finds it, as in a replay file; None if none is known."""

    @property
    def command(self) -> str:
        """The arguments that repeat the run; empty if none is known."""
        if self.run is None:
            return ""
        options = (
            f"--{n} '{v}'" if isinstance(v, str) else f"--{n} {v}" for n, v in self.run.items()
        )
        return f"run {' '.join(options)}"

    def changes(self) -> list[tuple[FunctionType, CodeType]]:
        """Return the functions that it changes, and the code that each gets.

        Raises
        ------
        SeedError
            When the text is not in the module once, or the change reaches no function.
        """
        module = importlib.import_module(self.module)
        text = inspect.getsource(module)
        if text.count(self.old) != 1:
            times = text.count(self.old)
            raise SeedError(f"{self.name}: {self.old!r} is in {self.module} {times} times")
        changed = compile(text.replace(self.old, self.new), str(module.__file__), "exec")
        codes = {code.co_qualname: code for code in _codes(changed)}
        found = [(each, codes[each.__qualname__]) for each in _functions(module)]
        reached = [(each, new) for each, new in found if _essence(new) != _essence(each.__code__)]
        if not reached:
            raise SeedError(f"{self.name}: the change reaches no function of {self.module}")
        return reached

    def sow(self) -> None:
        """Put the defect into this process; raises as `changes` does."""
        for function, code in self.changes():
            function.__code__ = code


def _codes(code: CodeType) -> Iterator[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _codes(inner)


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    """Return the functions and methods that a module defines."""
    rest: list[Any] = list(vars(module).values())
    while rest:
        each = rest.pop()
        if isinstance(each, type) and each.__module__ == module.__name__:
            rest += vars(each).values()
        elif isinstance(each, property):
            rest.append(each.fget)
        elif isinstance(each, cached_property):
            rest.append(each.func)
        elif isinstance(each, staticmethod | classmethod) or hasattr(each, "__wrapped__"):
            rest.append(each.__wrapped__)
        elif isinstance(each, FunctionType) and each.__code__.co_filename == module.__file__:
            yield each


def _essence(code: CodeType) -> object:
    """Return what a function does, without its place in the file."""
    constants = tuple(
        _essence(each) if isinstance(each, CodeType) else (type(each), each)
        for each in code.co_consts
    )
    return (code.co_code, code.co_names, constants)


def _read() -> tuple[Seeded, ...]:
    text = Path(__file__).with_name("seeded.yaml").read_text(encoding="utf-8")
    return tuple(Seeded(**each) for each in yaml.safe_load(text))


SEEDED = _read()
"""All seeded faults."""
FOUND = tuple(each for each in SEEDED if each.run is not None)
"""Those that a run is known for."""


def find(fault: Seeded) -> Result:
    """Put a fault into this process; return its run, with a problem where that finds nothing."""
    freeze_memory()
    fault.sow()
    run = {"write": 0, "seed": 1, "fault": "none", **(fault.run or {})}
    try:
        found = Run(run["life"], run["seed"], write=run["write"], fault=Fault(run["fault"])).live()
        noted = found.problems
    except Exception as error:  # noqa: BLE001 - whatever ends a run is noted
        found, noted = Result(run["life"], run["seed"], 0, run["fault"]), [repr(error)]
    found.what = f"the seeded fault: the operator {fault.name}"
    found.problems = [] if noted else ["this run does not find it any more"]
    return found


def search(fault: Seeded) -> str:
    """Put a fault into this process; return the first run of all lives that finds it, or ""."""
    freeze_memory()
    fault.sow()
    for life in LIVES:
        for result in sweep(life, 1, every=1, until_first=True):
            if result.problems:
                return f"{result.command}: {result.what}: {result.problems[0].strip()}"
    return ""


def table() -> str:
    """Return the table of seeded faults for the documentation."""
    rows = [f"| {each.name} | {f'`{each.command}`' if each.run else 'no run'} |" for each in SEEDED]
    return "\n".join(("| the operator … | is found by |", "|---|---|", *rows)) + "\n"
