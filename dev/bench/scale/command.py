"""The command of the benchmark: start the cluster, run both sides, write the report."""

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

WRITES: Final = 12
"""Maximum of writes per Container, from creation to readiness."""
SHARE: Final = 2 / 3
"""Maximum fraction of the time of Argo Rollouts."""
CAUGHT_UP: Final = 60.0
"""Maximum of seconds until a restarted operator has reconciled everything."""
TAKEOVER: Final = 20.0
"""Maximum of seconds until a standby leads after the leader was killed."""
MEMORY: Final = 1024.0
"""Maximum memory of the operator, in MiB."""


def main(options: Sequence[str] = ()) -> int:
    """Run the benchmark with command line options.

    Parameters
    ----------
    options
        Such as ``--count 1000 --rollouts``.

    Returns
    -------
    int
        Exit code; 1 = a target is missed.
    """
    result: int = command.main(list(options), prog_name="scale", standalone_mode=False)
    return result


@click.command()
@click.option("--count", default=100, show_default=True, help="Containers created at once.")
@click.option(
    "--per-organization", default=100, show_default=True, help="Containers per Organization."
)
@click.option("--rollouts", is_flag=True, help="Also measure Argo Rollouts.")
@click.option("--name", default="bench-scale", show_default=True, help="Name of the cluster.")
@click.option(
    "--within", default=0.0, help="Timeout of each side in seconds; 0 = derived from the count."
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=None,
    help="Folder for the JSON report and the plot.",
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
    """Run both sides, Argo Rollouts first, so that its leftovers burden Cloister.

    Parameters
    ----------
    within
        Timeout of each side in seconds.

    Raises
    ------
    AssertionError
        When a side is not ready in time.
    """
    load = os.getloadavg()[0]
    opened = open_environment(cluster, folder, count=count, per_organization=per_organization)
    async with opened as environment:
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
        (report.writes_each, WRITES, "writes per Container"),
        (report.ours.controller.peak, MEMORY, "MiB of memory"),
        (report.restart.caught_up, CAUGHT_UP, "s from restart until caught up"),
        (report.takeover.working, TAKEOVER, "s until the standby leads"),
    ]
    if len(report.sides) > 1:
        part = report.ours.readiness.total / report.sides[1].readiness.total
        found.append((part, SHARE, "of the time of Argo Rollouts until all are ready"))
    return [
        f"{value:.2f} {what}, target at most {most:.2f}"
        for value, most, what in found
        if value > most
    ]
