"""``python -m dev.chart manifest|package``: `make install-yaml` and `make chart` call it."""

import argparse
import sys
from pathlib import Path
from typing import Final

from dev.chart.helm import NAMESPACE
from dev.chart.package import LOCK, manifest, package
from dev.cluster import LocalClusterError

__all__ = ["main"]

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
        0; 1 = Helm cannot be built, or refuses.
    """
    given = _parser().parse_args(arguments)
    given.output.mkdir(parents=True, exist_ok=True)
    # A chart that was packaged knows the digests of its images; so does what is made beside them.
    try:
        if given.command == "package":
            print(f"packaged the chart and saved it to: {package(given.images, given.output)}")
            return 0
        path = given.output / "install.yaml"
        text = manifest(given.images, given.values, given.namespace)
    except LocalClusterError as error:
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
    rendered = commands.add_parser("manifest", help="write install.yaml, for those without Helm")
    rendered.add_argument("--values", type=Path, required=True, help="values of the chart")
    rendered.add_argument("--namespace", default=NAMESPACE, help="where to install it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
