"""``python -m dev.cluster up|down|status|logs``."""

import subprocess
import sys

import click

from dev.cluster.cluster import DEFAULT_NAME, Cluster, down, find, up
from dev.cluster.trouble import Trouble

__all__ = ["main"]

NAME = click.option("--name", default=DEFAULT_NAME, show_default=True, help="Name of the cluster.")


@click.group()
def main() -> None:
    """Run a real Kubernetes on this machine."""


@main.command("up")
@NAME
@click.option("--control-plane", is_flag=True, help="No node: for tests of the API alone.")
@click.option("--simulated", is_flag=True, help="A simulated node, even where a real one can run.")
def start(name: str, *, control_plane: bool, simulated: bool) -> None:
    """Start a cluster, or what is missing of one."""
    cluster = up(name, node=not control_plane, simulated=simulated)
    click.echo(f"cluster {name} ({cluster.layout.kind}) is up")
    click.echo(f"export KUBECONFIG={cluster.kubeconfig}")
    if cluster.has_node:
        click.echo(f"registry: {cluster.registry}")


@main.command("down")
@NAME
def stop(name: str) -> None:
    """End a cluster and remove all that it left."""
    click.echo(f"cluster {name} ended" if down(name) else f"there is no cluster {name}")


@main.command()
@NAME
def status(name: str) -> None:
    """Tell what runs. Exit code 1 when something of the cluster does not."""
    cluster = _existing(name)
    running = {process: cluster.processes.pid(process) for process in cluster.processes.names()}
    click.echo(f"cluster {name}: {cluster.layout.kind}, {cluster.layout.api_url}")
    for process, pid in running.items():
        click.echo(f"  {process:20} {'pid ' + str(pid) if pid else 'not running'}")
    sys.exit(0 if running and all(running.values()) else 1)


@main.command()
@NAME
@click.argument("component", required=False)
@click.option("--follow", "-f", is_flag=True, help="Go on as the log grows.")
def logs(name: str, component: str | None, *, follow: bool) -> None:
    """Show the log of a component, or the end of each."""
    cluster = _existing(name)
    if component is None:
        for process in cluster.processes.names():
            click.echo(f"== {process}\n{cluster.processes.last_words(process)}")
        return
    if component not in cluster.processes.names():
        raise Trouble(f"no component {component}; there are {', '.join(cluster.processes.names())}")
    log = cluster.processes.logs / f"{component}.log"
    subprocess.run(["tail", "-n", "+1", *(["-f"] if follow else []), str(log)], check=False)


def _existing(name: str) -> Cluster:
    cluster = find(name)
    if cluster is None:
        raise Trouble(f"there is no cluster {name}; start it with `python -m dev.cluster up`")
    return cluster


if __name__ == "__main__":
    try:
        main()
    except Trouble as trouble:
        sys.exit(f"error: {trouble}")
