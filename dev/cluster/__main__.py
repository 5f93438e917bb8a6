"""Command line of the local cluster: ``python -m dev.cluster up|down|status|logs``."""

import subprocess
import sys

import click

from dev.cluster.cluster import Cluster
from dev.cluster.layout import DEFAULT_NAME, LocalClusterError, names
from dev.cluster.lifecycle import down, find, up

name_option = click.option(
    "--name", default=DEFAULT_NAME, show_default=True, help="Name of the cluster."
)


@click.group(help="A real Kubernetes cluster on this machine.")
def main() -> None:
    """Define the command group."""


@main.command(name="up", help="Start a cluster, or restart its exited processes.")
@name_option
@click.option("--control-plane", is_flag=True, help="Start no node.")
@click.option(
    "--simulated",
    is_flag=True,
    help="Simulate the node: Pods become ready, those of Jobs complete, and nothing runs.",
)
@click.option(
    "--kubernetes",
    metavar="MINOR",
    help="Minor release of the API server, such as 1.35, with --control-plane.",
)
def up_command(name: str, control_plane: bool, simulated: bool, kubernetes: str | None) -> None:  # noqa: FBT001 - flags of click
    """Start a cluster."""
    if control_plane and simulated:
        raise click.UsageError("--control-plane and --simulated exclude each other")
    cluster = up(name, node=not control_plane, simulated=simulated, kubernetes=kubernetes)
    _show(cluster)


@main.command(name="down", help="Stop a cluster and remove everything that belongs to it.")
@name_option
def down_command(name: str) -> None:
    """Stop a cluster."""
    if not down(name):
        click.echo(f"no cluster {name}")


@main.command(help="Show clusters and their processes; exits with 1 when one is not running.")
@click.option("--name", default=None, help="Only this cluster.")
def status(name: str | None) -> None:
    """Show clusters."""
    clusters = [find(one) for one in ([name] if name else names())]
    found = [cluster for cluster in clusters if cluster is not None]
    for cluster in found:
        _show(cluster)
        for component, pid in cluster.components.items():
            click.echo(f"  {component:24} {pid or 'not running'}")
    if not found:
        click.echo(f"no cluster {name}" if name else "no cluster")
    sys.exit(0 if found and all(cluster.running for cluster in found) else 1)


@main.command(help="Show the last log lines of one component or of all.")
@click.argument("component", required=False)
@name_option
@click.option("-f", "--follow", is_flag=True, help="Follow the logs.")
@click.option("--lines", default=40, show_default=True, help="Number of lines per log.")
def logs(component: str | None, name: str, follow: bool, lines: int) -> None:  # noqa: FBT001 - a flag of click
    """Show logs."""
    cluster = find(name)
    if cluster is None:
        raise LocalClusterError(f"no cluster {name}")
    there = {path.stem: path for path in sorted(cluster.logs_dir.glob("*.log"))}
    if component and component not in there:
        raise LocalClusterError(f"no log of {component!r}; available logs: {', '.join(there)}")
    chosen = {component: there[component]} if component else there
    if follow:
        subprocess.run(["tail", "-n", str(lines), "-F", *map(str, chosen.values())], check=False)
        return
    for title in chosen:
        click.echo(f"==> {title}\n{cluster.processes.log_tail(title, lines)}")


def _show(cluster: Cluster) -> None:
    state = "running" if cluster.running else "not running (`up` restarts it)"
    click.echo(
        f"{cluster.name}: {cluster.form}, {state}, registry {cluster.registry}\n"
        f"  export KUBECONFIG={cluster.kubeconfig} PATH={cluster.bin('kubectl').parent}:$PATH"
    )


if __name__ == "__main__":
    try:
        main()
    except LocalClusterError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
