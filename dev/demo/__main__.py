"""``python -m dev.demo up [--check]`` and ``python -m dev.demo down``."""

import shutil
import sys

import click

from dev import cluster as local
from dev.cluster import LocalClusterError, Progress
from dev.cluster.binaries import ensure
from dev.cluster.layout import lock, state_folder
from dev.demo.installation import DemoInstallation, stop
from dev.demo.walkthrough import Walkthrough, note, say
from dev.images.errors import ImageError
from dev.images.local import LocalImages, local_images

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
@click.option(
    "--check",
    is_flag=True,
    help="Run the printed commands too, and remove everything at the end, also after a failure.",
)
@click.option("--keep-cluster", is_flag=True, help="With --check: keep the cluster.")
def up(name: str, *, check: bool, keep_cluster: bool) -> None:
    """Run the demo, and leave everything running unless --check is given.

    A second one on the same cluster waits until the first is through.
    """
    images = _prepare()
    with lock(f"{name}-demo"):
        _run(images, name, check=check, keep_cluster=keep_cluster)


def _run(images: LocalImages, name: str, *, check: bool, keep_cluster: bool) -> None:
    """Run the demo from these images."""
    say(f"Starting local Kubernetes cluster {name}")
    cluster = local.up(name)
    if not cluster.has_node:
        raise LocalClusterError(
            f"the demo needs a node that runs Pods, and cluster {name} has none: "
            f"take it down (python -m dev.cluster down --name {name}) or choose another name"
        )
    folder = cluster.layout.folder / "demo"
    folder.mkdir(exist_ok=True)
    walkthrough = Walkthrough(DemoInstallation(cluster, images, folder))
    try:
        steps = walkthrough.run()
        say("The demo is still running. To explore it, run")
        steps.show()
        if check:
            say("Running these commands")
            steps.run()
            note("each of them succeeded")
    except (ImageError, LocalClusterError) as error:
        # At once: what follows is said of the removal, which may fail as well.
        click.echo(f"\nerror: {error}", err=True)
        sys.exit(1)
    finally:
        if check:
            say("Removing the demo")
            try:
                if keep_cluster:
                    walkthrough.remove()
            finally:
                stop(folder)
                shutil.rmtree(folder, ignore_errors=True)
                if not keep_cluster:
                    local.down(name)
    if check:
        print("\nEvery check passed.")
    else:
        print("  make down    # stop and remove everything\n")


@main.command()
@CLUSTER
def down(name: str) -> None:
    """Stop and remove what `up` left running."""
    folder = state_folder() / name / "demo"
    stop(folder)
    shutil.rmtree(folder, ignore_errors=True)
    print(
        f"removed cluster {name}" if local.down(name) else f"nothing to remove: no cluster {name}"
    )


def _prepare() -> LocalImages:
    """Have the images and Helm before anything is started: they need the most of this machine."""
    say("Building the images of this checkout, unless they are in the cache")
    progress = Progress()
    images = local_images(progress)
    ensure(["helm"], progress)
    for image, digest in images.digests.items():
        note(f"{image} {digest}")
    return images


if __name__ == "__main__":
    try:
        main()
    except (ImageError, LocalClusterError) as error:
        sys.exit(f"\nerror: {error}")
