"""The command of the benchmark: brings its cluster up, runs both sides, writes what was found."""

import asyncio
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from dev import cluster as local
from dev.bench.scale.argo_rollouts import PROGRAM, run_rollouts
from dev.bench.scale.cloister import run_cloister, take_over
from dev.bench.scale.environment import open_environment
from dev.bench.scale.report import Report, as_json, plot, table
from dev.cluster import binaries

__all__ = ["main", "measure"]

WRITES: Final = 12
"""Writes for each Container from its creation to readiness, at most."""
SHARE: Final = 2 / 3
"""Part of the time of Argo Rollouts that we may take."""
CAUGHT_UP: Final = 60.0
"""Seconds until a restarted operator has looked at everything, at most."""
TAKEOVER: Final = 20.0
"""Seconds until another operator works after the leader was killed, at most."""
MEMORY: Final = 1024.0
"""MiB of memory of the operator, at most."""


def main(options: Sequence[str] = ()) -> int:
    """Run the benchmark with the options of its command line.

    Parameters
    ----------
    options
        Such as ``--count 1000 --rollouts``.

    Returns
    -------
    int
        Exit code: 1 when a target is missed.
    """
    result: int = command.main(list(options), prog_name="scale", standalone_mode=False)
    return result


@click.command()
@click.option("--count", default=100, show_default=True, help="Containers created at once.")
@click.option("--per-organization", default=100, show_default=True, help="Of each Organization.")
@click.option("--rollouts", is_flag=True, help="Measure Argo Rollouts in the same run.")
@click.option("--name", default="bench-scale", show_default=True, help="Name of the cluster.")
@click.option("--within", default=0.0, help="Seconds that each side may take; 0 = by the count.")
@click.option(
    "--output", type=click.Path(path_type=Path), default=None, help="Folder for JSON and plot."
)
def command(
    *,
    count: int,
    per_organization: int,
    rollouts: bool,
    name: str,
    within: float,
    output: Path | None,
) -> int:
    """Create many Containers at once on simulated nodes, and measure."""
    if rollouts:
        binaries.ensure([PROGRAM])
    local.down(name)
    cluster = local.up(name, simulated=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            report = asyncio.run(
                measure(
                    cluster,
                    Path(folder),
                    count=count,
                    per_organization=per_organization,
                    rollouts=rollouts,
                    within=within or 120 + count / 2,
                )
            )
    finally:
        local.down(name)
    click.echo(table(report))
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        (output / f"scale-{count}.json").write_text(json.dumps(as_json(report)) + "\n")
        (output / f"scale-{count}.svg").write_text(plot(report))
    missed = _missed(report)
    for each in missed:
        click.echo(f"MISSED: {each}")
    return int(bool(missed))


async def measure(
    cluster: local.Cluster,
    folder: Path,
    *,
    count: int,
    per_organization: int,
    rollouts: bool,
    within: float,
) -> Report:
    """Run both sides, the other one first, so that what it leaves weighs on ours.

    Parameters
    ----------
    cluster
        A cluster with a simulated node.
    folder
        For settings, repositories and logs.
    count
        Objects of each side.
    per_organization
        Containers of each Organization.
    rollouts
        Whether Argo Rollouts is measured too.
    within
        Seconds that each side may take.

    Raises
    ------
    AssertionError
        When a side is not ready in time.
    """
    load = os.getloadavg()[0]
    stage_of = open_environment(cluster, folder, count=count, per_organization=per_organization)
    async with stage_of as environment:
        other = (await run_rollouts(environment, count, within=within),) if rollouts else ()
        ours = await run_cloister(environment, count, within=within)
        restart = await take_over(environment, count, killed=False)
        takeover = await take_over(environment, count, killed=True)
    return Report(
        count=count,
        per_organization=per_organization,
        load=load,
        cores=os.cpu_count() or 1,
        sides=(ours, *other),
        restart=restart,
        takeover=takeover,
    )


def _missed(report: Report) -> list[str]:
    """Return which targets were missed."""
    found = [
        (report.writes_each, WRITES, "writes for each Container"),
        (report.ours.controller.peak, MEMORY, "MiB of memory"),
        (report.restart.caught_up, CAUGHT_UP, "s from a restart to caught up"),
        (report.takeover.working, TAKEOVER, "s until another operator works"),
    ]
    if len(report.sides) > 1:
        part = report.ours.readiness.total / report.sides[1].readiness.total
        found.append((part, SHARE, "of the time of Argo Rollouts until all are ready"))
    return [
        f"{value:.2f} {what}, at most {most:.2f} wanted"
        for value, most, what in found
        if value > most
    ]
