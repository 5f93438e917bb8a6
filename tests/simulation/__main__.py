"""``python -m tests.simulation``: the sweep over all lives, one run, or a replay."""

import ctypes
import os
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NoReturn

import click

from tests.simulation.faults import Fault
from tests.simulation.lives import LIVES
from tests.simulation.runs import EVERY, REGRESSIONS, Result, Run, freeze_memory, replay, sweep
from tests.simulation.seeded import FOUND, SEEDED, find, search, table

_NO_RANDOM_ADDRESSES = 0x0040000
"""ADDR_NO_RANDOMIZE of personality(2): in Python 3.11 the hash of None is its address."""


def _make_deterministic() -> None:
    """Start this process again where its hashes are those of every other run."""
    if os.environ.get("PYTHONHASHSEED", "random") != "random":
        return
    ctypes.CDLL(None).personality(_NO_RANDOM_ADDRESSES)
    command = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
    os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})


def _in_copy(job: tuple[str, Any]) -> list[Result]:
    """Do one job in a process of its own."""
    freeze_memory()
    what, argument = job
    if what == "replay":
        return [replay(argument)]
    if what == "seeded":
        return [find(argument)]
    life, seed, every = argument
    return list(sweep(life, seed, every=every))


def _report(results: list[Result]) -> bool:
    """Print what failed; return whether anything did."""
    failed = [each for each in results if each.problems]
    for each in failed:
        click.echo(f"FAILED  {each.command}\n        {each.what}")
        for problem in each.problems:
            click.echo(f"        {problem}")
    return bool(failed)


@click.group(invoke_without_command=True)
@click.option("--seeds", default=1, show_default=True, help="Schedules of each life.")
@click.option(
    "--every", default=EVERY, show_default=True, help="Which faults: each n-th at a write."
)
@click.option("--workers", default=2, show_default=True, help="Processes.")
@click.pass_context
def main(context: click.Context, seeds: int, every: int, workers: int) -> None:
    """Run what failed once, the seeded faults, then every life with faults at every write."""
    if context.invoked_subcommand is not None:
        return
    began = time.perf_counter()
    jobs: list[tuple[str, Any]] = [("replay", path) for path in sorted(REGRESSIONS.glob("*.json"))]
    jobs += [("seeded", fault) for fault in FOUND]
    jobs += [("sweep", (life, seed, every)) for seed in range(1, seeds + 1) for life in LIVES]
    results: list[Result] = []
    with get_context("fork").Pool(workers, maxtasksperchild=1) as pool:
        for found in pool.imap_unordered(_in_copy, jobs):
            results += found
    failed = _report(results)
    hours = sum(each.virtual_seconds for each in results) / 3600
    seconds = time.perf_counter() - began
    click.echo(f"{len(results)} runs, {hours:.1f} virtual hours, {seconds:.0f} s")
    sys.exit(1 if failed else 0)


def _told(run: Callable[[Callable[[str], None]], Result]) -> NoReturn:
    """Print the story of a run and its result."""
    freeze_memory()
    result = run(click.echo)
    if not _report([result]):
        click.echo(f"all is well after {result.virtual_seconds} s; trace {result.trace}")
    sys.stdout.flush()
    # Without collecting what is left of killed processes.
    os._exit(1 if result.problems else 0)


@main.command("run")
@click.option("--life", type=click.Choice([*LIVES]), default="update", show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--write", default=0, help="Number of the write with the fault.")
@click.option("--fault", type=click.Choice([str(each) for each in Fault]), default="none")
def run_one(life: str, seed: int, write: int, fault: str) -> None:
    """Run one life and print its story."""
    _told(lambda tell: Run(life, seed, write=write, fault=Fault(fault), tell=tell).live())


@main.command("replay")
@click.argument("path", type=click.Path(exists=True, path_type=Path))
def replay_one(path: Path) -> None:
    """Run what a replay file describes and print its story."""
    _told(lambda tell: replay(path, tell))


@main.command("faults")
@click.option("--search", "searched", default="", help="Try all runs against this defect.")
def seeded_faults(searched: str) -> None:
    """Print the table of defects that are put into the operator, or what finds one of them."""
    if not searched:
        click.echo(table(), nl=False)
        return
    fault = next(each for each in SEEDED if searched in each.name)
    click.echo(search(fault) or "no run finds it")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    _make_deterministic()
    main()
