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
    help="Name of the local cluster; $CLOISTER_DEMO_CLUSTER where not given.",
)


@click.group()
def main() -> None:
    """From nothing to containers of a real repository that serve HTTP."""


@main.command()
@CLUSTER
@click.option("--check", is_flag=True, help="Tear down at the end, also after a miss.")
@click.option("--keep-cluster", is_flag=True, help="With --check: leave the cluster running.")
def up(name: str, *, check: bool, keep_cluster: bool) -> None:
    """Run the demo and leave it running."""
    say(f"Starting the local cluster {name}")
    cluster = local.up(name)
    if not cluster.has_node:
        raise LocalClusterError(
            "the demo needs a node that really runs Pods: Linux as root, or Docker with kind"
        )
    folder = cluster.layout.folder / "demo"
    folder.mkdir(exist_ok=True)
    installation = DemoInstallation(cluster, folder)
    story = Walkthrough(installation)
    try:
        story.tell()
    finally:
        if check:
            say("Tearing down")
            try:
                if keep_cluster:
                    story.remove()
            finally:
                installation.stop()
                shutil.rmtree(folder, ignore_errors=True)
                if not keep_cluster:
                    local.down(name)
    if check:
        print("\nEvery step did what it should.")


@main.command()
@CLUSTER
def down(name: str) -> None:
    """End what `up` left running."""
    folder = state_folder() / name / "demo"
    if folder.exists():
        processes = Processes(folder / "processes", folder / "logs")
        for process in ("api", "operator"):
            processes.stop(process)
        shutil.rmtree(folder, ignore_errors=True)
    print(f"ended {name}" if local.down(name) else f"there is nothing to end: no cluster {name}")


if __name__ == "__main__":
    try:
        main()
    except LocalClusterError as trouble:
        sys.exit(f"\nerror: {trouble}")
