"""``python -m dev.demo up [--check]`` and ``python -m dev.demo down``."""

import shutil
import sys

import click

from dev import cluster as local
from dev.cluster import LocalClusterError
from dev.cluster.layout import state_folder
from dev.cluster.processes import Processes
from dev.demo.installation import DemoInstallation
from dev.demo.walkthrough import Walkthrough, say

__all__ = ["main"]

CLUSTER = click.option(
    "--cluster",
    "name",
    default="demo",
    show_default=True,
    envvar="CLOISTER_DEMO_CLUSTER",
    help="Name of the local cluster; default: $CLOISTER_DEMO_CLUSTER.",
)


@click.group()
def main() -> None:
    """Run Cloister on a local cluster, with containers from a git repository that serve HTTPS."""


@main.command()
@CLUSTER
@click.option("--check", is_flag=True, help="Remove everything at the end, also after a failure.")
@click.option("--keep-cluster", is_flag=True, help="With --check: keep the cluster.")
def up(name: str, *, check: bool, keep_cluster: bool) -> None:
    """Run the demo, and leave everything running unless --check is given."""
    say(f"Starting local Kubernetes cluster {name}")
    cluster = local.up(name)
    if not cluster.has_node:
        raise LocalClusterError(
            "the demo needs a node that runs Pods: run it as root on Linux, or with Docker and kind"
        )
    folder = cluster.layout.folder / "demo"
    folder.mkdir(exist_ok=True)
    installation = DemoInstallation(cluster, folder)
    walkthrough = Walkthrough(installation)
    try:
        walkthrough.run()
    finally:
        if check:
            say("Removing the demo")
            try:
                if keep_cluster:
                    walkthrough.remove()
            finally:
                installation.stop()
                shutil.rmtree(folder, ignore_errors=True)
                if not keep_cluster:
                    local.down(name)
    if check:
        print("\nEvery check passed.")


@main.command()
@CLUSTER
def down(name: str) -> None:
    """Stop and remove what `up` left running."""
    folder = state_folder() / name / "demo"
    if folder.exists():
        processes = Processes(folder / "processes", folder / "logs")
        for process in ("api", "operator"):
            processes.stop(process)
        shutil.rmtree(folder, ignore_errors=True)
    print(
        f"removed cluster {name}" if local.down(name) else f"nothing to remove: no cluster {name}"
    )


if __name__ == "__main__":
    try:
        main()
    except LocalClusterError as error:
        sys.exit(f"\nerror: {error}")
