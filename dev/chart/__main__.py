"""``python -m dev.chart manifest|package|load``: `make install-yaml`, `chart`, `kind-load`."""

import argparse
import sys
from pathlib import Path
from typing import Final

from dev.chart.helm import NAMESPACE
from dev.chart.loaded import load_images
from dev.chart.package import LOCK, manifest, package
from dev.cluster import LocalClusterError, Progress
from dev.images.errors import ImageError
from dev.images.local import local_images

ROOT: Final = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    arguments
        Command line arguments; None = those of the process.

    Returns
    -------
    int
        0; 1 = a program cannot be built, or refuses.
    """
    given = _parser().parse_args(arguments)
    given.output.mkdir(parents=True, exist_ok=True)
    # A chart that was packaged knows the digests of its images; so does what is made beside them.
    try:
        if given.command == "package":
            print(f"packaged the chart and saved it to: {package(given.images, given.output)}")
            return 0
        if given.command == "load":
            chart = load_images(local_images(Progress()), given.cluster, given.output)
            print(f"loaded the images into the nodes of {given.cluster}; install them by {chart}")
            return 0
        path = given.output / "install.yaml"
        text = manifest(given.images, given.values, given.namespace)
    except (ImageError, LocalClusterError) as error:
        print(error, file=sys.stderr)
        return 1
    path.write_text(text, encoding="utf-8")
    print(f"wrote {path}: kubectl apply --server-side -f {path}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m dev.chart", description=__doc__)
    parser.add_argument(
        "--images", type=Path, default=ROOT / "dist" / "images" / LOCK, help="digests of the images"
    )
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="folder to write into")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("package", help="package the chart with the digests of its images")
    loaded = commands.add_parser("load", help="load the images of the checkout into kind's nodes")
    loaded.add_argument("--cluster", default="kind", help="name of the cluster, as kind has it")
    rendered = commands.add_parser("manifest", help="write install.yaml, for those without Helm")
    rendered.add_argument("--values", type=Path, required=True, help="values of the chart")
    rendered.add_argument("--namespace", default=NAMESPACE, help="where to install it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
